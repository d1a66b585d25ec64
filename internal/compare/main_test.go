package compare_test

import (
	"context"
	"os"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/compare"
	"github.com/fencepost-pg/fencepost/internal/compare/worker"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// beWorker as the last argument makes this binary a worker.
const beWorker = "compare-worker"

func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	if os.Args[len(os.Args)-1] == beWorker {
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

// options are those of a quick run.
func options(t *testing.T) *compare.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &compare.Options{Quick: true, Worker: []string{self, beWorker}}
}
