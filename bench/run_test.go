package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestTheCommandSaysWhichSuitesThereAre(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"-rounds", "3"}, {"nothing"}} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), args, &stdout, &stderr)
		if status != 2 || !strings.Contains(stderr.String(), "library or peers") || stdout.Len() > 0 {
			t.Errorf(
				"%q: status %d, stdout %q, stderr %q; want 2 and the suites",
				args,
				status,
				stdout.String(),
				stderr.String(),
			)
		}
	}
}
