package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/cli"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// migration is one migration as a script reads it.
type migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	State     string     `json:"state"`
	AppliedAt *time.Time `json:"applied_at"`
}

func TestMigrateUpStatusDownInJSON(t *testing.T) {
	t.Parallel()
	database := "--database=" + testenv.EmptyDatabase(t)
	status := func(want string) {
		t.Helper()
		got := run(t, "migrate", "status", "--json", database)
		list := decode[struct{ Migrations []migration }](t, got).Migrations
		if got.status != 0 || len(list) == 0 || list[0].Version != 1 || list[0].Name != "00001_fence" ||
			list[0].State != want || (list[0].AppliedAt == nil) != (want == "pending") {
			t.Errorf("status: %+v, want %s", got, want)
		}
	}
	up := func(want int) {
		t.Helper()
		got := run(t, "migrate", "up", "--json", database)
		if got.status != 0 || !strings.HasPrefix(got.out, `{"applied":[`) {
			t.Errorf("up: %+v", got)
		}
		if list := decode[struct{ Applied []migration }](t, got).Applied; min(len(list), 1) != want {
			t.Errorf("up applied %+v", list)
		}
	}
	down := func(want int) {
		t.Helper()
		got := run(t, "migrate", "down", "--yes", "--json", database)
		if got.status != 0 || !strings.HasPrefix(got.out, `{"reverted":[`) {
			t.Errorf("down: %+v", got)
		}
		if list := decode[struct{ Reverted []migration }](t, got).Reverted; min(len(list), 1) != want {
			t.Errorf("down took down %+v", list)
		}
	}
	status("pending")
	down(0)
	up(1)
	up(0)
	status("applied")
	down(1)
	status("pending")
	up(1)
}

func TestMigrateForPeople(t *testing.T) {
	t.Parallel()
	database := "--database=" + testenv.EmptyDatabase(t)
	for _, step := range []struct{ command, want string }{
		{"status", "pending  00001_fence"},
		{"up", "applied  00001_fence"},
		{"up", "nothing to apply"},
		{"status", "applied  00001_fence"},
		{"down --yes", "pending  00001_fence"},
		{"down --yes", "nothing to take down"},
	} {
		got := run(t, append(append([]string{"migrate"}, strings.Fields(step.command)...), database)...)
		if got.status != 0 || !strings.Contains(got.out, step.want) || got.errOut != "" {
			t.Errorf("%s: %+v, want %s", step.command, got, step.want)
		}
	}
}

func TestCase08_MigrateDownRefusesUnlessForced(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	pool := testenv.PoolOn(t, url)
	if got := run(t, "migrate", "up", "--database="+url); got.status != 0 {
		t.Fatalf("up: %+v", got)
	}
	const claim = `SELECT FROM fencepost.claim('r', 1, '00000000-0000-0000-0000-000000000001')`
	if _, err := pool.Exec(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	got := run(t, "migrate", "down", "--yes", "--json", "--database="+url)
	if got.status != 1 || !strings.Contains(got.errOut, "tokens remain") || !strings.Contains(got.out, `"error":`) {
		t.Errorf("down: %+v, want a refusal", got)
	}
	if got := run(t, "migrate", "down", "--yes", "--force", "--database="+url); got.status != 0 {
		t.Errorf("forced down: %+v", got)
	}
}

func TestCase22_MigrateBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	pooler := testenv.PgBouncer(t, testenv.EmptyDatabase(t), &services.PgBouncerOptions{PoolSize: 2})
	database := "--database=" + pooler.URL()
	for _, step := range []string{"status", "up", "status", "down --yes", "up", "status"} {
		got := run(t, append(append([]string{"migrate"}, strings.Fields(step)...), database)...)
		if got.status != 0 {
			t.Errorf("%s: %+v", step, got)
		}
	}
}

// A migrator that waits for another one can be stopped, by the caller and by Ctrl-C.
func TestMigrateStopsWhileItWaits(t *testing.T) {
	t.Parallel()
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		url, awaitWaiting := lockedDatabase(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out, errOut bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- cli.Run(ctx, []string{"migrate", "up", "--database=" + url}, strings.NewReader(""), &out, &errOut)
		}()
		awaitWaiting()
		cancel()
		if status := <-ended; status != 1 || !strings.Contains(errOut.String(), "interrupted") {
			t.Errorf("exit status %d, %s", status, errOut.String())
		}
	})
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		url, awaitWaiting := lockedDatabase(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var errOut bytes.Buffer
		cmd := exec.CommandContext(ctx, self, "migrate", "up")
		cmd.Env = append(os.Environ(), beProgram+"=1", "FENCEPOST_POSTGRES_URL="+url)
		cmd.Stderr = &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitWaiting()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the exit status below has the outcome
		if status := cmd.ProcessState.ExitCode(); status != 1 || !strings.Contains(errOut.String(), "interrupted") {
			t.Errorf("exit status %d, %s", status, errOut.String())
		}
	})
}

// lockedDatabase returns a database whose migration lock is taken, and a function that returns when
// a migrator waits for it.
func lockedDatabase(t *testing.T) (url string, awaitWaiting func()) {
	t.Helper()
	url = testenv.EmptyDatabase(t)
	pool := testenv.PoolOn(t, url)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1179534157, 0)`); err != nil {
		t.Fatal(err)
	}
	return url, func() {
		t.Helper()
		const query = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for waiting := 0; waiting == 0; {
			if err := pool.QueryRow(ctx, query).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
	}
}
