// Command probe prints the way in which PostgreSQL and Redis would be found or started (url, docker or local), for
// scripts that must decide whether to install something. If no way works, it says why and exits with status 1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/fencepost-pg/fencepost/internal/services"
)

func main() {
	services.RunHostIfAsked()
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	found := services.Probe(ctx)
	if found.Err != nil {
		fmt.Fprintln(os.Stderr, found.Err)
		return 1
	}
	fmt.Println(found.Way)
	return 0
}
