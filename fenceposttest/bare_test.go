package fenceposttest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// On a machine without Redis, tests with Options.Advisory run, and others do not.
func TestAMachineWithoutRedis(t *testing.T) {
	t.Parallel()
	for test, want := range map[string]string{
		"TestAnOvertakenHolderIsRefused/advisory": "PASS",
		"TestAnOvertakenHolderIsRefused/redis":    "FAIL",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+strings.ReplaceAll(test, "/", "$/^")+"$")
		cmd.Env = append(os.Environ(), "CI=true", "FENCEPOST_SERVICES=local", "FENCEPOST_REDIS_PROGRAM=no-such-program")
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "no postgres and initdb") {
			testenv.Lacking(t, err, services.WayLocal)
		}
		if !strings.Contains(string(out), "--- "+want+": "+test) {
			t.Errorf("want %s: %v\n%s", want, err, out)
		}
	}
}
