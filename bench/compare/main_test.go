package compare_test

import (
	"os"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/workertest"
)

func TestMain(m *testing.M) { workertest.Main(m) }

// options are those of a quick run.
func options(t *testing.T) *compare.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &compare.Options{Quick: true, Worker: []string{self, workertest.Argument}}
}
