// Command torture breaks things while workers work through the library's public API, records every operation, and
// checks the history: see the packages check, load and nemesis.
//
//	torture [flags]    -help lists them
//
// It exits with 1 if a promise is broken, and then says in which folder the history is. The seed that it prints makes
// the same schedule again.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/internal/services"
)

func main() {
	services.RunHostIfAsked()
	if os.Args[len(os.Args)-1] == load.Argument {
		if err := load.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1) // nobody listens any more
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}
