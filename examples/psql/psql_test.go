package psql_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// client finds psql where Debian installs it, if it is not in PATH. A machine whose servers are containers may lack it.
func client(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("psql"); err == nil {
		return path
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		testenv.Lacking(t, errors.New("no psql, in PATH or where Debian puts it"), services.WayLocal)
	}
	return found[len(found)-1]
}

// The story, twice on one database: the second time a fence and an account already exist.
func TestPlainPsqlIsRefusedOnceOvertaken(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	for range 2 {
		cmd := exec.CommandContext(t.Context(), "bash", "story.sh")
		cmd.Env = append(os.Environ(), "DATABASE_URL="+url, "PSQL="+client(t))
		out, err := cmd.CombinedOutput()
		const want = "first: deposited 10\nsecond: took over, deposited 5\n" +
			"first: refused as stale\nwithout a claim: refused\n"
		if err != nil || string(out) != want {
			t.Fatalf("%v, and it printed\n%s", err, out)
		}
	}
	pool := testenv.PoolOn(t, url)
	var balance, token int64
	err := pool.QueryRow(t.Context(), `SELECT balance, last_fencing_token FROM shop.account WHERE id = 1`).
		Scan(&balance, &token)
	if err != nil || balance != 30 || token != 4 {
		t.Errorf("balance %d, stamped with %d, %v", balance, token, err)
	}
	// The protection refuses a bare UPDATE. The control removes the protection.
	bare := func() error {
		return exec.CommandContext(t.Context(), client(t), url, "--no-psqlrc", "--file", "bare.sql").Run()
	}
	if err := bare(); err == nil {
		t.Error("a bare UPDATE passed the protection")
	}
	if _, err := pool.Exec(t.Context(), `SELECT fencepost.unprotect('shop.account')`); err != nil {
		t.Fatal(err)
	}
	if err := bare(); err != nil {
		t.Errorf("the control: %v", err)
	}
}
