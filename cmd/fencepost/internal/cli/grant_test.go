package cli_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Each kind of role gets the rights that it needs, and none that only the others need.
func TestGrantGivesEachKindOfRoleItsPart(t *testing.T) {
	t.Parallel()
	const (
		enter   = `fencepost.enter(text, bigint, uuid)`
		protect = `fencepost.protect(regclass, text, text, name[], name, text, boolean)`
		verify  = `fencepost.verify()`
	)
	address := testenv.Database(t)
	pool := testenv.PoolOn(t, address)
	for kind, may := range map[string]map[string]bool{
		"application": {enter: true, protect: false, verify: false},
		"owner":       {enter: false, protect: true, verify: true},
		"operator":    {enter: false, protect: false, verify: true},
	} {
		_, role := asRole(t, address, ` "The" `+kind)
		args := []string{"grant", role, "--database=" + address}
		if kind != "application" {
			args = append(args, "--"+kind)
		}
		for range 2 {
			if got := run(t, args...); got.status != 0 || !strings.Contains(got.out, role) || got.errOut != "" {
				t.Errorf("grant: %+v", got)
			}
		}
		for function, want := range may {
			var got bool
			const query = `SELECT has_function_privilege($1, $2, 'EXECUTE')`
			if err := pool.QueryRow(t.Context(), query, role, function).Scan(&got); err != nil || got != want {
				t.Errorf("%s may %s: %t, %v; want %t", kind, function, got, err, want)
			}
		}
	}
}

// If one role does not exist, no role is granted anything, and the error says exactly that.
func TestGrantIsAllOrNothing(t *testing.T) {
	t.Parallel()
	address := testenv.Database(t)
	app, role := asRole(t, address, "_app")
	got := run(t, "grant", role, "nobody at all", "--json", "--database="+address)
	list := decode[struct {
		Granted     []string
		Kind, Error string
	}](t, got)
	if got.status != 1 || len(list.Granted) != 0 || list.Kind != "application" ||
		!strings.Contains(list.Error, "nobody at all") {
		t.Errorf("grant: %+v", got)
	}
	if got := run(t, "migrate", "status", "--database="+app); got.status != 1 {
		t.Errorf("status of the role that exists: %+v", got)
	}
	mustRun(t, "grant", role, "--database="+address) // the control
	if got := run(t, "migrate", "status", "--database="+app); got.status != 0 {
		t.Errorf("status after the grant: %+v", got)
	}
	// Only the schema's owner grants.
	if got := run(t, "grant", role, "--database="+app); got.status != 1 || !strings.Contains(got.errOut, "42501") {
		t.Errorf("grant as another role: %+v", got)
	}
}

func TestGrantUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`expected "<role> ..."`:        {"--database=" + nowhere},
		"--operator and --owner can't": {"x", "--operator", "--owner", "--database=" + nowhere},
		"role name \"\" is empty":      {""},
		"is longer than 63 bytes":      {strings.Repeat("x", 64)},
		"not a PostgreSQL address":     {pgx.Identifier{"x"}.Sanitize(), "--database=postgres://u:hunter2%zz@h/d"},
	} {
		got := run(t, append([]string{"grant"}, args...)...)
		if got.status != 2 || !strings.Contains(got.errOut, want) || strings.Contains(got.errOut, "hunter2") {
			t.Errorf("%q: %+v, want %s", args, got, want)
		}
	}
}
