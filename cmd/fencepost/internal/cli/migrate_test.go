package cli_test

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/cli"
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
		pending := 0
		if want == "pending" {
			pending = 3
		}
		if got.status != pending || len(list) == 0 || list[0].Version != 1 || list[0].Name != "00001_fence" ||
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
		pending := 0
		if step.command == "status" && strings.HasPrefix(step.want, "pending") {
			pending = 3
		}
		if got.status != pending || !strings.Contains(got.out, step.want) || got.errOut != "" {
			t.Errorf("%s: %+v, want %s", step.command, got, step.want)
		}
	}
}

// A clone of the schema alone: status says what is found and what is wrong, up puts it right and says so.
func TestCase47_StatusSaysWhatACloneLacks(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	if said := testenv.Restore(t, url, testenv.Dump(t, testenv.Database(t), "--schema-only")); said != "" {
		t.Fatalf("restore: %s", said)
	}
	database := "--database=" + url
	for _, step := range []struct{ command, want, other string }{
		{"status", "found    00001_fence", "problem  the secret"},
		{"up", "found    00001_fence", "repaired the secret"},
		{"status", "applied  00001_fence", ""},
		{"up", "nothing to apply", ""},
	} {
		got := run(t, append(append([]string{"migrate"}, strings.Fields(step.command)...), database)...)
		if got.status != 0 || !strings.Contains(got.out, step.want) || !strings.Contains(got.out, step.other) ||
			got.errOut != "" {
			t.Errorf("%s: %+v, want %s and %s", step.command, got, step.want, step.other)
		}
		if step.other == "" && (strings.Contains(got.out, "problem ") || strings.Contains(got.out, "repaired")) {
			t.Errorf("%s: %+v, want no problem", step.command, got)
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
	for i, step := range []string{"status", "up", "status", "down --yes", "up", "status"} {
		got := run(t, append(append([]string{"migrate"}, strings.Fields(step)...), database)...)
		want := 0
		if i == 0 {
			want = 3 // pending
		}
		if got.status != want {
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
		const query = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query LIKE '/* waits for the migration lock */%'`
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for waiting := 0; waiting == 0; {
			if err := pool.QueryRow(ctx, query).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// asRole returns the address of a database for sessions that act as a new role, which is dropped when the test ends.
func asRole(t *testing.T, address, suffix string) (theirs, role string) {
	t.Helper()
	pool := testenv.PoolOn(t, address)
	role = pool.Config().ConnConfig.Database + suffix
	quoted := pgx.Identifier{role}.Sanitize()
	if _, err := pool.Exec(t.Context(), `CREATE ROLE `+quoted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), `DROP OWNED BY `+quoted+`; DROP ROLE `+quoted); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address does not parse")
	}
	query := u.Query()
	query.Set("role", role)
	u.RawQuery = query.Encode()
	return u.String(), role
}

// An application's role sees that nothing is pending. To a role without the grant the error says who migrates.
func TestMigrateAsAnApplicationRole(t *testing.T) {
	t.Parallel()
	address := testenv.Database(t)
	app, role := asRole(t, address, "_app")
	for _, command := range []string{"up", "status"} {
		got := run(t, "migrate", command, "--database="+app)
		if got.status != 1 || !strings.Contains(got.errOut, "grant_application('"+pgx.Identifier{role}.Sanitize()+"')") {
			t.Errorf("%s without the grant: %+v", command, got)
		}
	}
	grant := `SELECT fencepost.grant_application($1::text::regrole)`
	if _, err := testenv.PoolOn(t, address).Exec(t.Context(), grant, role); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"up": "nothing to apply", "status": "applied  00001_fence"} {
		got := run(t, "migrate", command, "--database="+app)
		if got.status != 0 || !strings.Contains(got.out, want) || got.errOut != "" {
			t.Errorf("%s: %+v, want %s", command, got, want)
		}
	}
}
