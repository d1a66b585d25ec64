package conformance_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/conformance"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func config(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verdicts are those of a run, by name. A run that could not remove what it had made fails the test.
func verdicts(t *testing.T, opts *conformance.Options) map[string]conformance.Result {
	t.Helper()
	report, err := conformance.Run(t.Context(), opts)
	if err != nil {
		t.Error(err)
	}
	all := make(map[string]conformance.Result)
	for _, r := range report.Checks {
		all[r.Name] = r
		if r.Verdict != conformance.OK && r.Why == "" {
			t.Errorf("%s: %s, without a word why", r.Name, r.Verdict)
		}
	}
	return all
}

// want compares the verdicts of some checks with those given, and those of all others with one verdict.
func want(
	t *testing.T,
	got map[string]conformance.Result,
	others conformance.Verdict,
	some map[string]conformance.Verdict,
) {
	t.Helper()
	for name, r := range got {
		verdict, ok := some[name]
		if !ok {
			verdict = others
		}
		if r.Verdict != verdict {
			t.Errorf("%s is %s, want %s: %s", name, r.Verdict, verdict, r.Why)
		}
	}
	for name := range some {
		if _, ok := got[name]; !ok {
			t.Errorf("there is no check %s", name)
		}
	}
}

// wantWhy requires words in the reason of a verdict.
func wantWhy(t *testing.T, got map[string]conformance.Result, name string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(got[name].Why, word) {
			t.Errorf("%s says %q, want %q in it", name, got[name].Why, word)
		}
	}
}

// wantNoTrace checks that a run has left nothing in a database.
func wantNoTrace(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var schemas int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'fencepost%check%'`).
		Scan(&schemas); err != nil {
		t.Fatal(err)
	}
	if schemas != 0 {
		t.Errorf("%d schemas were left behind", schemas)
	}
}

// keys are all keys of a namespace.
func keys(t *testing.T, client redis.UniversalClient, namespace string) []string {
	t.Helper()
	found, _, err := client.Scan(t.Context(), 0, "fencepost:"+namespace+":*", 10_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	return found
}
