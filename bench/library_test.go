package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/library"
	"github.com/fencepost-pg/fencepost/bench/page"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// useTestServers names the servers of the test binary by address, as a user may do.
func useTestServers(t *testing.T) (postgresURL, redisURL string) {
	t.Helper()
	postgresURL, redisURL = testenv.Database(t), testenv.RedisURL(t)
	t.Setenv("FENCEPOST_SERVICES", "url")
	t.Setenv("FENCEPOST_POSTGRES_URL", postgresURL)
	t.Setenv("FENCEPOST_REDIS_URL", redisURL)
	return postgresURL, redisURL
}

// TestEveryFigureIsMeasured runs the whole command for a very short time.
func TestEveryFigureIsMeasured(t *testing.T) {
	stdout, all := measured(t, "library", "-rounds", "2", "-seconds", "0.01", "-fences", "5000", "-rows", "1000")
	onThePage(t, blockLibrary, all, strings.NewReplacer("5000 fences", "1000000 fences"))
	const far = library.FarSuffix
	targets := map[string]float64{
		"SET NX PX + compare-and-delete": 0, "lease.Manager": 1,
		"SET NX PX + compare-and-delete" + far: 0, "lease.Manager" + far: 0,
		"plain UPDATE": 0, "fence.Update, bare token": 0.97,
		"plain UPDATE" + far: 0, "fence.Update, bare token" + far: 0,
		"BEGIN + pg_advisory_xact_lock + UPDATE + COMMIT": 0, "Store.Do with one write": 0.6,
		"AdvisoryTx.Do with one write": 0.9, "Store.Acquire + Release, no write": 0.9,
		"BEGIN + pg_advisory_xact_lock + UPDATE + COMMIT" + far: 0, "Store.Do with one write" + far: 0.8,
		"AdvisoryTx.Do with one write" + far: 0, "Store.Acquire + Release, no write" + far: 1,
		"plain UPDATE by primary key": 0, "Table.Update under the guard": 0, // to plain UPDATE 0.85, to others 1.5
		"plain UPDATE by primary key" + far: 0, "Table.Update under the guard" + far: 0,
		"Store.Tx under 10 leases": 0, "Store.Tx under 1000 leases": 1 / 1.3,
		"Store.Do with one write, goroutines: 8": 0, "Store.Do with one write, goroutines: 1": 0,
		"Store.Do with one write, goroutines: 64": 0, "Store.Do with one write, goroutines: 256": 0.95,
		"lease.Manager, goroutines: 8": 0, "lease.Manager, goroutines: 1": 0,
		"lease.Manager, goroutines: 64": 0, "lease.Manager, goroutines: 256": 0.95,
		"enter + UPDATE without a trigger": 0, "enter + UPDATE behind fencepost.protect": 0.7,
		"claim, 1000 fences": 0, "claim, 5000 fences": 1 / 1.2, "guard, 1000 fences": 0, "guard, 5000 fences": 1 / 1.2,
		"UPDATE … FROM unnest(…)": 0, "Table.UpdateBatch": 0.8,
		"COPY + INSERT … ON CONFLICT": 0, "Table.Load": 0.6,
		"COPY + INSERT … ON CONFLICT, one resource a row": 0, "Table.Import, one resource a row": 0.3,
	}
	found := map[string]bool{}
	for _, f := range all {
		if f.Value <= 0 || f.Ratio <= 0 || f.Against == "" || (f.Met == nil) != (f.Target == nil) {
			t.Errorf("figure %+v is not whole", f)
		}
		name, what := withoutWhat(f.Name)
		found[name+" "+f.Unit] = true
		if want := targets[name]; what == "" && want != 0 &&
			(f.Target == nil || *f.Target != want || f.Met == nil || *f.Met != (f.Ratio >= want)) {
			t.Errorf("figure %+v, want target %v and whether the ratio reaches it", f, want)
		}
	}
	for name := range targets {
		for _, unit := range unitsOf(name) {
			if !found[name+" "+unit] {
				t.Errorf("%s is not measured in %s", name, unit)
			}
		}
		if !strings.Contains(stdout, name) {
			t.Errorf("%s is not in the table:\n%s", name, stdout)
		}
	}
}

// measured runs the command, which must leave nothing on the servers, and returns its tables and its figures.
func measured(t *testing.T, args ...string) (tables string, all []figure.Figure) {
	t.Helper()
	postgresURL, redisURL := useTestServers(t)
	path := filepath.Join(t.TempDir(), "figures.json")
	t.Setenv(envJSON, path)
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), args, &stdout, &stderr); status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr.String())
	}
	nothingLeft(t, postgresURL, redisURL)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return stdout.String(), all
}

// onThePage compares what was measured with the rows of a block of docs/performance.md, which are of a longer run.
func onThePage(t *testing.T, block string, measured []figure.Figure, longer *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := page.Rows(string(text), block)
	if err != nil {
		t.Fatal(err)
	}
	want := page.RowsOf(measured)
	for i := range want {
		want[i] = longer.Replace(want[i])
	}
	if !slices.Equal(rows, want) {
		t.Errorf("docs/performance.md has the rows\n%s\nand measured was\n%s\nRefresh the page with bench page.",
			strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// withoutWhat splits the name of a figure from the unit that is counted, which is "" for a rate.
func withoutWhat(figure string) (name, what string) {
	for _, what := range []string{": allocations", ": bytes"} {
		if name, ok := strings.CutSuffix(figure, what); ok {
			return name, what
		}
	}
	return figure, ""
}

func unitsOf(name string) []string {
	switch {
	case strings.HasPrefix(name, "Store.Tx under"):
		return []string{"leases/s", "allocs/lease", "bytes/lease"}
	case strings.HasSuffix(name, "one resource a row"):
		return []string{"rows/s", "allocs/row", "bytes/row"}
	}
	return []string{"calls/s", "allocs/call", "bytes/call"}
}

// nothingLeft checks that a run has left nothing on servers that stay.
func nothingLeft(t *testing.T, postgresURL, redisURL string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), postgresURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var databases int
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_database WHERE datname ~ '^fencepost-(bench|peers)-'`).
		Scan(&databases)
	if err != nil || databases != 0 {
		t.Errorf("%d databases were left behind (%v)", databases, err)
	}
	client := testenv.RedisOn(t, redisURL)
	keys, err := client.Keys(t.Context(), "*fencepost-bench-*").Result()
	if err == nil {
		var more []string
		more, err = client.Keys(t.Context(), "*fencepost-peers-*").Result()
		keys = append(keys, more...)
	}
	if err != nil || len(keys) != 0 {
		t.Errorf("%d keys were left behind, such as %v (%v)", len(keys), keys[:min(3, len(keys))], err)
	}
}

// TestAnInterruptedRunLeavesNothing: also when it is in the middle of measuring.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	postgresURL, redisURL := useTestServers(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	stderr := &watcher{word: "measuring: store", seen: interrupt}
	var stdout bytes.Buffer
	if status := run(ctx, []string{"library", "-seconds", "600"}, &stdout, stderr); status != 1 {
		t.Errorf("exit status %d, want 1: %s", status, stderr.text.String())
	}
	nothingLeft(t, postgresURL, redisURL)
}

// watcher calls seen when a given word is written to it.
type watcher struct {
	text bytes.Buffer
	word string
	seen func()
}

func (w *watcher) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.word)) {
		w.seen()
	}
	return w.text.Write(p)
}

func TestPostgresThatDoesNotFlushIsPointedOut(t *testing.T) {
	pool := testenv.Pool(t)
	const warning = "NOT as in production"
	text, err := durabilityOf(t.Context(), pool)
	if err != nil || strings.Contains(text, "fsync on") == strings.Contains(text, warning) {
		t.Errorf("got %q (%v)", text, err)
	}
	config := pool.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	careless, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer careless.Close()
	text, err = durabilityOf(t.Context(), careless)
	if err != nil || !strings.Contains(text, "synchronous_commit off") || !strings.Contains(text, warning) {
		t.Errorf("got %q (%v)", text, err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	o := &librarySuite{}
	err := parseFlags(o, []string{"library"}, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	p := o.plan()
	candidates := 50 // of all figures, at most
	if took := time.Duration(candidates) * (time.Duration(p.Rounds)*p.Slice + p.WarmUp); took > 5*time.Minute {
		t.Errorf("by default the slices take %v, too long for six minutes in all", took)
	}
	if len(o.figures()) != len(library.All()) || p.Workers != 8 {
		t.Errorf("by default %d figures are measured with %d workers", len(o.figures()), p.Workers)
	}
	err = parseFlags(o, []string{"library", "-rounds=3", "-seconds", "1.5", "-only", "fence"}, &stderr)
	if err != nil || o.plan().Rounds != 3 || o.plan().Slice != 1500*time.Millisecond {
		t.Errorf("got %+v (%v)", o.plan(), err)
	}
	if f := o.figures(); len(f) != 1 || f[0].Name != "fence" {
		t.Errorf("-only fence gives %+v", f)
	}
	err = parseFlags(o, []string{"library", "-only", "fence,far-fence"}, &stderr)
	if f := o.figures(); err != nil || len(f) != 2 || f[0].Name != "fence" || f[1].Name != "far-fence" {
		t.Errorf("-only fence,far-fence gives %+v (%v)", f, err)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-rounds", "0"},
		{"-rounds", "x"},
		{"-rows", "5000"},
		{"-rows", "1"},
		{"-seconds", "0"},
		{"-seconds", "-1"},
		{"-seconds", "NaN"},
		{"-seconds", "1e300"},
		{"-only", "nothing"},
		{"-only", "fence,nothing"},
		{"-only", "fence,"},
		{"-unknown"},
		{"lease"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(
			t.Context(),
			append([]string{"library"}, args...),
			&stdout,
			&stderr,
		); status != 2 ||
			stderr.Len() == 0 {
			t.Errorf("%v: exit status %d, want 2 and why: %q", args, status, stderr.String())
		}
	}
	var stderr bytes.Buffer
	if _, err := parse(
		[]string{"library", "-help"},
		&stderr,
	); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(stderr.String(), "-rounds") {
		t.Errorf("-help gives %v and %q", err, stderr.String())
	}
}
