// Package workertest lets a test binary be its own worker.
package workertest

import (
	"context"
	"os"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/worker"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Argument as the last one makes a binary whose TestMain calls [Main] a worker.
const Argument = "compare-worker"

// Main runs the tests, or the worker. It is all that a TestMain does.
func Main(m *testing.M) {
	services.RunHostIfAsked()
	if os.Args[len(os.Args)-1] == Argument {
		if err := worker.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	// A binary built with -race sleeps for a second at its end otherwise; workers inherit this.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testenv.Main(m)
}
