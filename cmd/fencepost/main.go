// Command fencepost manages the database side of the fencepost library. Run it with --help.
package main

import (
	"os"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/cli"
	"github.com/fencepost-pg/fencepost/internal/services"
)

func main() {
	services.RunHostIfAsked() // servers that the demo starts belong to a process of their own
	os.Exit(cli.Main())
}
