package cell_test

import (
	"context"
	"os"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// TestMain makes this binary its own worker.
func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	if os.Args[len(os.Args)-1] == load.Argument {
		if err := load.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	// A binary built with -race sleeps for a second at its end otherwise; workers inherit this.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	testenv.Main(m)
}
