package python_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// interpreter finds a Python that has psycopg2. PYTHON names another one.
func interpreter(t *testing.T) string {
	t.Helper()
	var err error
	for _, python := range []string{os.Getenv("PYTHON"), "python3", "/usr/bin/python3"} {
		if python == "" {
			continue
		}
		if err = exec.CommandContext(t.Context(), python, "-c", "import psycopg2").Run(); err == nil {
			return python
		}
	}
	testenv.Lacking(t, err, services.WayLocal)
	return ""
}

// A worker in Python takes over from another, and PostgreSQL refuses the first: the table is protected, and its writes
// are under the claims that were drawn.
func TestAWorkerInPythonIsRefusedOnceOvertaken(t *testing.T) {
	t.Parallel()
	python, pool := interpreter(t), testenv.Pool(t)
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "worker.py")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+pool.Config().ConnString())
	out, err := cmd.CombinedOutput()
	const want = "first: deposited 10\nsecond: took over, deposited 5\nfirst: refused as stale\n"
	if err != nil || string(out) != want {
		t.Fatalf("%v, and it printed\n%s", err, out)
	}
	var balance, token int64
	err = pool.QueryRow(t.Context(), `SELECT balance, last_fencing_token FROM shop.account WHERE id = 1`).
		Scan(&balance, &token)
	if err != nil || balance != 15 || token != 2 {
		t.Errorf("balance %d, stamped with %d, %v", balance, token, err)
	}
}
