// Command fencepost manages the database side of the fencepost library. Run it with --help.
package main

import (
	"context"
	"os"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/cli"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
	"github.com/fencepost-pg/fencepost/internal/services"
)

func main() {
	services.RunHostIfAsked() // servers that the demo starts belong to a process of their own
	servers.QuietRedis()
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
