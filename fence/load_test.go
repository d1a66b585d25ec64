package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
)

// noStagingTables fails where a staging table is still there.
func noStagingTables(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var n int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relname LIKE 'fencepost_load%'`).Scan(&n)
	if err != nil || n != 0 {
		t.Errorf("%d staging tables are left, %v", n, err)
	}
}

// C29: 10,000 rows of which 100 exist with higher tokens.
func TestCase29ALoadOverwritesNoNewerRow(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 5_000) // the other half is inserted
	exec(t, m.pool, `UPDATE app.item SET last_fencing_token = 6 WHERE id % 50 = 0`)
	ids := upTo(10_000)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	check := func(err error, written int) {
		t.Helper()
		var many *fence.ManyError
		if !errors.As(err, &many) || many.Rows != 10_000 || many.Written != written || many.Stale != 100 || many.Failed() != 100 ||
			len(many.Failures) != 100 {
			t.Fatalf("got %v", err)
		}
		for i, f := range many.Failures { // in key order
			if f.Key[0] != int64(50*(i+1)) || outcome(f.Err) != "stale 5 < 6" {
				t.Errorf("failure %d is %v", i, &f)
			}
		}
		if n := count(t, m.pool, `value = 'new' AND last_fencing_token = 5`); n != written {
			t.Errorf("%d rows were written, not %d", n, written)
		}
		if n := count(t, m.pool, `value = 'old' AND last_fencing_token = 6`); n != 100 {
			t.Errorf("%d newer rows are as they were", n)
		}
		noStagingTables(t, m.pool)
	}
	check(m.load(t.Context(), m.claim, source("new", ids...), nil), 0)
	check(m.load(t.Context(), m.claim, source("new", ids...), partial), 9_900)
}

// Control of TestCase29ALoadOverwritesNoNewerRow: a plain merge overwrites what is newer.
func TestControlAPlainMergeOverwrites(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 1)
	exec(t, m.pool, `UPDATE app.item SET last_fencing_token = 6`)
	exec(t, m.pool, `INSERT INTO app.item (id, value, last_fencing_token) VALUES (1, 'new', 5)
		ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value, last_fencing_token = EXCLUDED.last_fencing_token`)
	if n := count(t, m.pool, `value = 'new' AND last_fencing_token = 5`); n != 1 {
		t.Error("the newer row stands: the test of loads shows nothing")
	}
}

// C29: two loaders at once, with tokens 5 and 6. Whichever comes first, each row ends at 6.
func TestCase29TwoLoadersEndAtTheHigherToken(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 500)
	newer := claimOf("r", 6)
	done := make(chan error, 1)
	go func() { done <- m.load(t.Context(), m.claim, source("five", upTo(1000)...), nil) }()
	mustRaise(t, m.pool, newer)
	if err := m.load(t.Context(), newer, source("six", upTo(1000)...), nil); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		wantStale(t, err, 5, 6)
	}
	if n := count(t, m.pool, `value = 'six' AND last_fencing_token = 6`); n != 1000 {
		t.Errorf("%d rows ended at 6", n)
	}
	wantStale(t, m.load(t.Context(), m.claim, source("five", upTo(1000)...), partial), 5, 6)
	if n := count(t, m.pool, `value = 'six' AND last_fencing_token = 6`); n != 1000 {
		t.Errorf("%d rows stayed at 6", n)
	}
}

// gate is a source that says when its first row is asked for, and then waits.
type gate struct {
	pgx.CopyFromSource
	reached chan struct{}
	open    chan struct{}
	passed  bool
}

func (g *gate) Next() bool {
	if !g.passed {
		g.passed = true
		close(g.reached)
		<-g.open
	}
	return g.CopyFromSource.Next()
}

// A loader that is stopped while it sends its rows keeps no claim waiting; afterwards it writes nothing.
func TestALoaderThatIsStoppedHoldsUpNoClaim(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	g := &gate{CopyFromSource: source("five", 1, 2, 3), reached: make(chan struct{}), open: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- m.load(t.Context(), m.claim, g, nil) }()
	<-g.reached
	mustRaise(t, m.pool, claimOf("r", 6)) // would wait for ever, if the guard stood before the copy
	close(g.open)
	wantStale(t, <-done, 5, 6)
	if n := count(t, m.pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// Control of TestALoaderThatIsStoppedHoldsUpNoClaim: with the guard first, the claim waits for the source.
func TestControlAGuardBeforeTheCopyHoldsUpTheClaim(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	g := &gate{CopyFromSource: source("five", 1, 2, 3), reached: make(chan struct{}), open: make(chan struct{})}
	done, claimed := make(chan error, 1), make(chan error, 1)
	go func() {
		done <- pgx.BeginFunc(t.Context(), m.pool, func(tx pgx.Tx) error {
			if err := fence.Guard(t.Context(), tx, m.claim); err != nil {
				return err
			}
			_, err := m.bulk.Stage(t.Context(), tx, []string{"id", "value"}, g)
			return err
		})
	}()
	<-g.reached
	go func() { claimed <- raise(t.Context(), m.pool, claimOf("r", 6)) }()
	untilWaiting(t, m.pool)
	close(g.open)
	if err := errors.Join(<-done, <-claimed); err != nil {
		t.Error(err)
	}
}

func TestCase29ALoadRefusesAKeyThatStandsTwice(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	exec(t, m.pool, `UPDATE app.item SET last_fencing_token = 6 WHERE id = 2`)
	for _, ids := range [][]int{{1, 3, 1}, {9, 9}, {2, 1, 2}} { // there, not there, and stale
		for _, opts := range []*fence.ManyOptions{nil, partial} {
			wantErr(t, m.load(t.Context(), m.claim, source("new", ids...), opts), fence.ErrInvalid)
		}
	}
	if n := count(t, m.pool, `value <> 'old' OR id > 3`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	noStagingTables(t, m.pool)
}

// C29: a table under row-level security, into which COPY itself is refused.
func TestCase29ALoadUnderRowLevelSecurity(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	role := "loader_" + m.pool.Config().ConnConfig.Database[len("fencepost_test_"):]
	quoted := pgx.Identifier{role}.Sanitize()
	exec(t, m.pool, fmt.Sprintf(`
		CREATE ROLE %[1]s;
		GRANT USAGE ON SCHEMA app, fencepost TO %[1]s;
		GRANT SELECT, INSERT, UPDATE ON app.item TO %[1]s;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost TO %[1]s;
		ALTER TABLE app.item ENABLE ROW LEVEL SECURITY;
		CREATE POLICY seen ON app.item FOR SELECT USING (true);
		CREATE POLICY added ON app.item FOR INSERT WITH CHECK (true);
		CREATE POLICY changed ON app.item FOR UPDATE USING (id <> 2)`, quoted))
	t.Cleanup(func() { // the role outlives the database otherwise
		_, err := m.pool.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, quoted))
		if err != nil {
			t.Error(err)
		}
	})
	as := func(fn func(tx pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), m.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+quoted); err != nil {
				return err
			}
			return fn(tx)
		})
	}
	load := func(ids ...int) error {
		return as(func(tx pgx.Tx) error {
			staged, err := m.bulk.Stage(t.Context(), tx, []string{"id", "value"}, source("new", ids...))
			if err != nil {
				return err
			}
			return staged.Merge(t.Context(), m.claim, nil)
		})
	}
	update := func(ids ...int) error {
		b, err := m.bulk.Batch(changes("new", ids...))
		if err != nil {
			return err
		}
		return as(func(tx pgx.Tx) error { return b.Update(t.Context(), tx, m.claim, nil) })
	}
	err := as(func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"app", "item"}, []string{"id", "value"}, source("new", 7))
		return err
	})
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "0A000" {
		t.Errorf("a plain copy: %v", err)
	}
	if err := load(1, 3, 4); err != nil {
		t.Error(err)
	}
	if got := report(update(1, 2, 3)); got != "0 of 3 written; 2 refused" {
		t.Errorf("a row that the policy protects: %s", got)
	}
	// PostgreSQL itself says no to an ON CONFLICT that the policy does not allow.
	if err := load(1, 2); !errors.As(err, &server) || server.Code != "42501" {
		t.Errorf("a load of a row that the policy protects: %v", err)
	}
	if n := count(t, m.pool, `value = 'new'`); n != 3 {
		t.Errorf("%d rows were written", n)
	}
	exec(t, m.pool, `REVOKE TEMPORARY ON DATABASE `+pgx.Identifier{m.pool.Config().ConnConfig.Database}.Sanitize()+` FROM PUBLIC`)
	err = load(1)
	if wantErr(t, err, fence.ErrUnavailable); err == nil || !strings.Contains(err.Error(), "TEMPORARY") {
		t.Errorf("without the privilege: %v", err)
	}
}

func TestBadLoadsAreRefused(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	exec(t, m.pool, `ALTER TABLE app.item ADD COLUMN made text GENERATED ALWAYS AS (value || '!') STORED`)
	bulk := bulkOf(t, m.pool, rows)
	broken := errors.New("the source broke")
	stage := func(columns []string, source pgx.CopyFromSource) error {
		return pgx.BeginFunc(t.Context(), m.pool, func(tx pgx.Tx) error {
			_, err := bulk.Stage(t.Context(), tx, columns, source)
			return err
		})
	}
	for name, columns := range map[string][]string{
		"no key": {"value"}, "key twice": {"id", "id", "value"}, "column twice": {"id", "value", "value"}, "no columns": nil,
		"token column": {"id", "last_fencing_token"}, "generated": {"id", "made"}, "unknown": {"id", "nothing"},
	} {
		if err := stage(columns, source("x")); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, row := range map[string][]any{"too few": {1}, "too many": {1, "a", "b"}, "no text": {1, struct{}{}}, "no number": {"x", "a"}} {
		if err := stage([]string{"id", "value"}, pgx.CopyFromRows([][]any{{2, "fine"}, row})); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	calls := 0
	err := stage([]string{"id", "value"}, pgx.CopyFromFunc(func() ([]any, error) {
		if calls++; calls > 5 {
			return nil, broken
		}
		return []any{calls, "x"}, nil
	}))
	if !errors.Is(err, broken) || errors.Is(err, fence.ErrUnavailable) {
		t.Errorf("a broken source: %v", err)
	}
	err = m.load(t.Context(), m.claim, pgx.CopyFromRows([][]any{{1, nil}}), nil)
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "23502" {
		t.Errorf("NULL where it cannot be: %v", err)
	}
	if err := m.load(t.Context(), m.claim, source("x"), nil); err != nil {
		t.Errorf("an empty load: %v", err)
	}
	if n := count(t, m.pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	noStagingTables(t, m.pool)
}

// A column that changes its type between two loads of the same connection changes how its values are sent.
func TestALoadSeesAColumnChangeItsType(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 0)
	config := m.pool.Config()
	config.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	load := func(value any) error {
		return pgx.BeginFunc(t.Context(), one, func(tx pgx.Tx) error {
			staged, err := m.bulk.Stage(t.Context(), tx, []string{"id", "value"}, pgx.CopyFromRows([][]any{{1, value}}))
			if err != nil {
				return err
			}
			return staged.Merge(t.Context(), m.claim, nil)
		})
	}
	if err := load("7"); err != nil {
		t.Fatal(err)
	}
	for typ, value := range map[string]any{"bigint": 42, "double precision": 4.5} { // of one length
		exec(t, m.pool, `ALTER TABLE app.item ALTER value DROP DEFAULT, ALTER value TYPE `+typ+` USING 0`)
		for range 2 {
			err = load(value) // pgx notices that a statement it had prepared is no longer good, and says so once
			if err == nil {
				break
			}
		}
		var got string
		if scanErr := m.pool.QueryRow(t.Context(), `SELECT value::text FROM app.item WHERE id = 1`).Scan(&got); scanErr != nil || got != fmt.Sprint(value) {
			t.Errorf("%s: got %s, want %v (%v, %v)", typ, got, value, err, scanErr)
		}
	}
}
