package fenceposttest

import (
	"os"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Main runs the tests of a binary, stops the servers that it started, and exits. TestMain must call only Main: the
// servers belong to a second process, which is this binary executed again.
func Main(m *testing.M) { os.Exit(testenv.Run(m)) }
