// Command bench measures fencepost on servers that it finds or starts, and prints tables of ratios.
//
//	bench library [flags]    the library beside hand-written code
//	bench peers [flags]      the lease beside other lock libraries and PostgreSQL's advisory locks
//	bench page [flags]       no measurement: the figures of earlier runs, as the tables of docs/performance.md
//
// Each has flags of its own, which -help lists. With BENCH_JSON naming a file it also writes the figures there, as
// a JSON array of objects with name, value, unit, against, ratio, target and met.
//
// It is in a module of its own so that the lock libraries it measures are not among the library's requirements.
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
