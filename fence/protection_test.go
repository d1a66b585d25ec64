package fence_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

const createOther = `CREATE TABLE app.other (id bigint PRIMARY KEY, value text,
	last_fencing_token bigint NOT NULL DEFAULT 0)`

// protectSQL protects a table, all of whose rows are one resource.
func protectSQL(table, name, mode string) string {
	return fmt.Sprintf(`SELECT fencepost.protect('%s', 'test', '%s', mode => '%s')`, table, name, mode)
}

// protections returns the number of trigger functions.
func protections(t *testing.T, db fence.DB) (n int) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencepost'::regnamespace
		AND proname LIKE 'protection\_%'
		AND prorettype = 'trigger'::regtype`).
		Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A call of protect that waits for its table delays no other call, not even one with the same rule.
func TestAProtectionThatWaitsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, createOther)
	writer, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Rollback(context.Background()) }()
	fencetest.Exec(t, writer, `UPDATE app.item SET value = 'at work' WHERE id = 1`)
	waiting := make(chan error, 1)
	go func() {
		_, err := pool.Exec(t.Context(), protectSQL("app.item", "all", "enforce"))
		waiting <- err
	}()
	fencetest.UntilBlockedBy(t, pool, writer)
	patience, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := pool.Exec(patience, protectSQL("app.other", "all", "enforce")); err != nil {
		t.Errorf("a protection waits for another: %v", err)
	}
	if err := writer.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	wantNoProblems(t, pool)
	if n := protections(t, pool); n != 1 {
		t.Errorf("%d protections for one rule", n)
	}
}

// A trigger function lives as long as a trigger uses it.
func TestProtectionsThatNobodyUsesAreDropped(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, createOther)
	for _, step := range []struct {
		do   string
		want int
	}{
		{protectSQL("app.item", "all", "observe"), 1},
		{protectSQL("app.item", "all", "enforce"), 1},
		{protectSQL("app.other", "all", "enforce"), 1},
		{protectSQL("app.item", "items", "enforce"), 2},
		{protectSQL("app.item", "items", "enforce"), 2},
		{protectSQL("app.item", "all", "enforce"), 1},
		{`SELECT fencepost.unprotect('app.item')`, 1},
		{`DROP TABLE app.other`, 1},
		{protectSQL("app.item", "items", "enforce"), 1},
		{`SELECT fencepost.unprotect('app.item')`, 0},
	} {
		fencetest.Exec(t, pool, step.do)
		if n := protections(t, pool); n != step.want {
			t.Errorf("after %s there are %d protections, want %d", step.do, n, step.want)
		}
		if !strings.HasPrefix(step.do, "DROP") {
			wantNoProblems(t, pool)
		}
	}
}

// A trigger function that another transaction is about to use is kept, though the catalog does not show that use yet.
func TestAProtectionThatIsAboutToBeUsedIsNotDropped(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, createOther)
	fencetest.Exec(t, pool, protectSQL("app.item", "all", "enforce"))
	other, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	fencetest.Exec(t, other, protectSQL("app.other", "all", "enforce"))
	patience, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := pool.Exec(patience, `SELECT fencepost.unprotect('app.item')`); err != nil {
		t.Errorf("another's protection is in the way: %v", err)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoProblems(t, pool)
	_, err = pool.Exec(t.Context(), `INSERT INTO app.other (id) VALUES (1)`)
	wantState(t, err, "ZF004")
}

// Whatever one owner does to a table, Verify still checks every other table.
func TestVerifyLooksAtTheOthersWhereOneCannotBeLookedAt(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	fencetest.Exec(
		t,
		pool,
		createLog+createOther+`; CREATE TABLE app.zoo (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
	)
	for _, table := range []string{"app.log", "app.other", "app.zoo"} {
		fencetest.Exec(t, pool, protectSQL(table, "all", "enforce"))
	}
	fencetest.Exec(t, pool, `ALTER TABLE app.zoo DISABLE TRIGGER "~fencepost"`)
	replaceFunction(t, pool, "table_problem(regclass, name[], name)", "BEGIN\n",
		"BEGIN\n IF target = 'app.other'::regclass THEN PERFORM 1 / 0; END IF;\n")
	owner, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Rollback(context.Background()) }()
	fencetest.Exec(t, owner, `LOCK TABLE app.log_2a IN ACCESS EXCLUSIVE MODE`)
	found := problems(t, pool)
	var got []string
	for _, p := range found {
		got = append(got, p.Table+" "+string(p.Kind))
		if p.Kind == fence.ProblemUnknown && p.Text == "" {
			t.Errorf("no word on why: %+v", p)
		}
	}
	if want := "app.log unknown, app.other unknown, app.zoo disabled"; strings.Join(got, ", ") != want {
		t.Errorf("problems: %v, want %s", found, want)
	}
}

// A role that may protect may write to the table that verify reads, within the limits of what protect would record for
// a table of its own.
func TestWhatProtectWasToldStaysWithinWhatItTakes(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	fencetest.Exec(t, l.owner, createOther)
	for _, values := range []string{
		`'no namespace', '', '{}', 'last_fencing_token', 'enforce'`,
		`'test', repeat('x', 1025), '{}', 'last_fencing_token', 'enforce'`,
		`'test', 'x', array_fill('id'::name, '{101}'), 'last_fencing_token', 'enforce'`,
		`'test', 'x', '{}', 'last_fencing_token', 'some other'`,
	} {
		_, err := l.owner.Exec(
			t.Context(),
			`INSERT INTO fencepost.protected SELECT 'app.other', 'app', 'other', `+values+`, false`,
		)
		wantState(t, err, "23514")
	}
	_, err := l.owner.Exec(
		t.Context(),
		`SELECT fencepost.protect('app.other', 'test', 'x', array_fill('id'::name, '{101}'))`,
	)
	wantState(t, err, "ZF002")
}

// No setting silences the log of a protection in mode observe: neither one made by hand nor one left over from another
// transaction.
func TestNobodySilencesWhatAProtectionObserves(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	fencetest.Exec(t, owner, `INSERT INTO app.item (id) SELECT generate_series(10, 200)`)
	protectMode(t, owner, "observe", "app.item", "item:", "id")
	pool, log := logged(t, owner)
	used := ""
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `UPDATE app.item SET value = 'x'`)
		return tx.QueryRow(t.Context(), `SELECT current_setting('fencepost.logged')`).Scan(&used)
	})
	if lines := log.take(); err != nil || len(lines) != 101 || !strings.HasPrefix(used, "100 ") {
		t.Fatalf("%d lines, the setting is %q, %v", len(lines), used, err)
	}
	for _, forged := range []string{used, strings.Repeat(".", 100), "100", "100 ", "999 x", "99999999999 x", "x"} {
		if lines := observed(t, pool, log, forged); len(lines) != 1 {
			t.Errorf("after SET fencepost.log_proof = %q: lines %q", forged, lines)
		}
	}
}

func observed(t *testing.T, pool *pgxpool.Pool, log *serverLog, forged string) []string {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SELECT set_config('fencepost.logged', $1, true)`, forged)
		return sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id = 1`)(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
	return log.take()
}

// A role that may enter may ask for a table's rule, and can read nothing else of what protect recorded.
func TestAnApplicationAsksForTheRuleOfAProtection(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	fencetest.Exec(t, l.owner, createOther)
	ask := func(table string) *pgtable.Protection {
		d, err := pgtable.ProtectionOf(t.Context(), l.app, pgtable.Table{Schema: "app", Name: table, Key: []string{"id"}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := pgtable.Protection{
		Namespace:   "test",
		Prefix:      "item:",
		Columns:     []string{"id"},
		TokenColumn: "last_fencing_token",
	}
	if d := ask("item"); d == nil || !d.Equal(want) {
		t.Errorf("the protection is %v, want %v", d, want)
	}
	for _, table := range []string{"other", "missing"} {
		if d := ask(table); d != nil {
			t.Errorf("%s has a protection: %v", table, d)
		}
	}
	fencetest.Exec(t, l.owner, strings.TrimPrefix(createLog, `CREATE SCHEMA app;`)+protectSQL("app.log", "log", "observe"))
	for _, table := range []string{"log", "log_2", "log_2a"} {
		if d := ask(table); d == nil || d.Prefix != "log" || len(d.Columns) != 0 {
			t.Errorf("the protection of %s is %v", table, d)
		}
	}
	fencetest.Exec(t, l.admin, `SELECT fencepost.revoke_all($1::text::regrole)`, l.appRole)
	_, err := pgtable.ProtectionOf(t.Context(), l.app, fencetest.Rows)
	wantGrant(t, "protection", err)
}
