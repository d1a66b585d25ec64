package fencepost_test

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// The examples need servers, so `go test` does not run them by itself. Each prints its error, and nothing else.
func TestExamplesWork(t *testing.T) {
	for name, example := range map[string]func(){
		"Store.Do": ExampleStore_Do, "Table.Update": ExampleTable_Update, "Lease.Claim": ExampleLease_Claim,
	} {
		t.Run(name, func(t *testing.T) {
			url := testenv.EmptyDatabase(t)
			pool := testenv.PoolOn(t, url)
			exec(t, pool, `CREATE SCHEMA app;
				CREATE TABLE app.invoice (id text PRIMARY KEY, value text NOT NULL);
				INSERT INTO app.invoice VALUES ('2026-11', 'open')`)
			t.Setenv("FENCEPOST_POSTGRES_URL", url)
			t.Setenv("FENCEPOST_REDIS_URL", testenv.RedisURL(t))
			if out := strings.TrimSpace(printed(t, example)); out != "<nil>" {
				t.Errorf("it printed %q", out)
			}
			var value string
			if err := pool.QueryRow(t.Context(), `SELECT value FROM app.invoice`).Scan(&value); err != nil || value == "open" {
				t.Errorf("the row holds %q, %v", value, err)
			}
		})
	}
}

// printed returns what run writes to standard output.
func printed(t *testing.T, run func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	run()
	os.Stdout = stdout
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
