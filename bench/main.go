// Command bench measures the lease beside the lock libraries it competes with and beside PostgreSQL's
// advisory locks, on servers that it finds or starts, and prints a table. Run it with -help for its flags.
//
// It is a module of its own so that the competitors are not among the library's dependencies.
//
// With BENCH_JSON naming a file it also writes the figures there, as a JSON array of objects with
// name, value, unit, against, ratio, target and met.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencepost-pg/fencepost/internal/services"
)

func main() {
	services.RunHostIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
