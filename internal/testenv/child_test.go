package testenv_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// failEnv makes TestKeep fail.
const failEnv = "FENCEPOST_TEST_FAIL"

// child runs one test of this binary with another environment.
func child(t *testing.T, test string, env ...string) (output string, failed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

// TestCase30MissingServersFailTheBuild: without servers a test fails under CI=true
// and skips with the reason elsewhere.
func TestCase30MissingServersFailTheBuild(t *testing.T) {
	t.Parallel()
	none := []string{
		"FENCEPOST_SERVICES=", "FENCEPOST_POSTGRES_URL=", "FENCEPOST_REDIS_URL=",
		"DOCKER_HOST=tcp://127.0.0.1:1", "PATH=/nonexistent", "FENCEPOST_TEST_REPORT=", "FENCEPOST_REQUIRE=",
	}
	const test = "TestEmptyDatabaseIsEmpty"
	out, failed := child(t, test, append(none, "CI=true")...)
	if !failed || !strings.Contains(out, "--- FAIL: "+test) {
		t.Errorf("under CI=true the test did not fail:\n%s", out)
	}
	out, failed = child(t, test, append(none, "CI=")...)
	if failed || !strings.Contains(out, "--- SKIP: "+test) || !strings.Contains(out, "redis-server") {
		t.Errorf("the test did not skip with the reason:\n%s", out)
	}
}

// TestCase30AddressesNeedNoDocker: servers named by address are all it takes, and
// the number of tests that used them is reported.
func TestCase30AddressesNeedNoDocker(t *testing.T) {
	t.Parallel()
	report := filepath.Join(t.TempDir(), "report")
	out, failed := child(t, "TestEmptyDatabaseIsEmpty",
		"FENCEPOST_SERVICES=", "CI=true", "FENCEPOST_TEST_REPORT="+report,
		"FENCEPOST_POSTGRES_URL="+testenv.AdminURL(t), "FENCEPOST_REDIS_URL="+testenv.RedisURL(t),
		"DOCKER_HOST=tcp://127.0.0.1:1", "PATH=/nonexistent",
	)
	if failed {
		t.Fatalf("the child failed:\n%s", out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	const want = "github.com/fencepost-pg/fencepost/internal/testenv 1 services (url): PostgreSQL "
	if !strings.HasPrefix(string(text), want) || strings.Count(string(text), "\n") != 1 {
		t.Errorf("the report is %q, want it to start with %q", text, want)
	}
}

// TestFailedDatabaseIsKept: with FENCEPOST_KEEP, under the name in the log.
func TestFailedDatabaseIsKept(t *testing.T) {
	t.Parallel()
	out, _ := child(t, "TestKeep",
		failEnv+"=1", "FENCEPOST_KEEP=1", "FENCEPOST_TEST_REPORT=", "FENCEPOST_SERVICES=url",
		"FENCEPOST_POSTGRES_URL="+testenv.AdminURL(t), "FENCEPOST_REDIS_URL="+testenv.RedisURL(t),
	)
	name := regexp.MustCompile(`fencepost_kept_\w+`).FindString(out)
	if name == "" {
		t.Fatalf("the log names no database:\n%s", out)
	}
	a := admin(t)
	if !exists(t, a, "SELECT FROM pg_database WHERE datname = $1", name) {
		t.Errorf("database %s is gone", name)
	}
	if _, err := a.Exec(t.Context(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
		t.Error(err)
	}
}

// TestCase30ARequiredWayIsNotSkipped: a machine that has servers and lacks a way passes its tests, with CI=true
// too, and reports those that were skipped; where FENCEPOST_REQUIRE names the way, they fail.
func TestCase30ARequiredWayIsNotSkipped(t *testing.T) {
	t.Parallel()
	report := filepath.Join(t.TempDir(), "report")
	addresses := []string{
		"FENCEPOST_SERVICES=", "CI=true", "FENCEPOST_TEST_REPORT=" + report,
		"FENCEPOST_POSTGRES_URL=" + testenv.AdminURL(t), "FENCEPOST_REDIS_URL=" + testenv.RedisURL(t),
		"DOCKER_HOST=tcp://127.0.0.1:1", "PATH=/nonexistent",
	}
	for _, test := range []string{"TestOwnRedisIsAnother", "TestSentinelsAreStarted"} {
		_ = os.Remove(report)
		out, failed := child(t, test, append(addresses, "FENCEPOST_REQUIRE=")...)
		if failed || !strings.Contains(out, "--- SKIP: "+test) || !strings.Contains(out, "redis-server") {
			t.Errorf("%s did not skip with the reason:\n%s", test, out)
		}
		if text, err := os.ReadFile(
			report,
		); err != nil || !strings.HasPrefix(string(text), "skipped\t"+test+"\t") ||
			strings.Count(string(text), "\n") != 1 {
			t.Errorf("the report of the skipped %s is %q, %v", test, text, err)
		}
		out, failed = child(t, test, append(addresses, "FENCEPOST_REQUIRE=docker,local")...)
		if !failed || !strings.Contains(out, "FENCEPOST_REQUIRE names") {
			t.Errorf("%s did not fail though its way is required:\n%s", test, out)
		}
	}
	out, failed := child(t, "TestSentinelsAreStarted", append(addresses, "FENCEPOST_REQUIRE=dokcer")...)
	if !failed || !strings.Contains(out, `"dokcer"`) {
		t.Errorf("a way that there is not was accepted:\n%s", out)
	}
}
