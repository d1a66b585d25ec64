package pgbatch_test

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

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// noStagingTables fails if a staging table still exists.
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
	m := fencetest.SetupBatch(t, 5_000) // the other half is inserted
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 6 WHERE id % 50 = 0`)
	ids := upTo(10_000)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	check := func(err error, written int) {
		t.Helper()
		var many *pgbatch.BatchError
		if !errors.As(err, &many) || many.Rows != 10_000 || many.Written != written || many.Stale != 100 ||
			many.Failed() != 100 ||
			len(many.Failures) != 100 {
			t.Fatalf("got %v", err)
		}
		for i, f := range many.Failures { // in key order
			if f.Key[0] != int64(50*(i+1)) || outcome(f.Err) != "stale 5 < 6" {
				t.Errorf("failure %d is %v", i, &f)
			}
		}
		if n := fencetest.Count(t, m.Pool, `value = 'new' AND last_fencing_token = 5`); n != written {
			t.Errorf("%d rows were written, not %d", n, written)
		}
		if n := fencetest.Count(t, m.Pool, `value = 'old' AND last_fencing_token = 6`); n != 100 {
			t.Errorf("%d newer rows are as they were", n)
		}
		noStagingTables(t, m.Pool)
	}
	check(m.Load(t.Context(), m.Claim, fencetest.Source("new", ids...), nil), 0)
	check(m.Load(t.Context(), m.Claim, fencetest.Source("new", ids...), fencetest.Partial), 9_900)
}

// Control of TestCase29ALoadOverwritesNoNewerRow: a plain merge overwrites what is newer.
func TestControlAPlainMergeOverwrites(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 1)
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 6`)
	fencetest.Exec(t, m.Pool, `INSERT INTO app.item (id, value, last_fencing_token) VALUES (1, 'new', 5)
		ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value, last_fencing_token = EXCLUDED.last_fencing_token`)
	if n := fencetest.Count(t, m.Pool, `value = 'new' AND last_fencing_token = 5`); n != 1 {
		t.Error("the newer row stands: the test of loads shows nothing")
	}
}

// C29: two loaders at once, with tokens 5 and 6. Whichever comes first, each row ends at 6.
func TestCase29TwoLoadersEndAtTheHigherToken(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 500)
	newer := fencetest.ClaimOf("r", 6)
	done := make(chan error, 1)
	go func() { done <- m.Load(t.Context(), m.Claim, fencetest.Source("five", upTo(1000)...), nil) }()
	fencetest.MustRaise(t, m.Pool, newer)
	if err := m.Load(t.Context(), newer, fencetest.Source("six", upTo(1000)...), nil); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		fencetest.WantStale(t, err, 5, 6)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'six' AND last_fencing_token = 6`); n != 1000 {
		t.Errorf("%d rows ended at 6", n)
	}
	fencetest.WantStale(t, m.Load(t.Context(), m.Claim, fencetest.Source("five", upTo(1000)...), fencetest.Partial), 5, 6)
	if n := fencetest.Count(t, m.Pool, `value = 'six' AND last_fencing_token = 6`); n != 1000 {
		t.Errorf("%d rows stayed at 6", n)
	}
}

// gate is a source that signals when its first row is requested, and then waits.
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

// A loader that is paused while it sends its rows does not make a claim wait; afterwards it writes nothing.
func TestALoaderThatIsStoppedHoldsUpNoClaim(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	g := &gate{CopyFromSource: fencetest.Source("five", 1, 2, 3), reached: make(chan struct{}), open: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- m.Load(t.Context(), m.Claim, g, nil) }()
	<-g.reached
	fencetest.MustRaise(t, m.Pool, fencetest.ClaimOf("r", 6)) // would wait forever if the guard came before the copy
	close(g.open)
	fencetest.WantStale(t, <-done, 5, 6)
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// Control of TestALoaderThatIsStoppedHoldsUpNoClaim: with the guard first, the claim waits for the source.
func TestControlAGuardBeforeTheCopyHoldsUpTheClaim(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	g := &gate{CopyFromSource: fencetest.Source("five", 1, 2, 3), reached: make(chan struct{}), open: make(chan struct{})}
	done, claimed := make(chan error, 1), make(chan error, 1)
	go func() {
		done <- pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
			if err := pgclaim.Enter(t.Context(), tx, m.Claim); err != nil {
				return err
			}
			_, err := m.Batches.Stage(t.Context(), tx, []string{"id", "value"}, g)
			return err
		})
	}()
	<-g.reached
	go func() { claimed <- fencetest.Raise(t.Context(), m.Pool, fencetest.ClaimOf("r", 6)) }()
	untilWaiting(t, m.Pool)
	close(g.open)
	if err := errors.Join(<-done, <-claimed); err != nil {
		t.Error(err)
	}
}

func TestCase29ALoadRefusesAKeyThatStandsTwice(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 6 WHERE id = 2`)
	for _, ids := range [][]int{{1, 3, 1}, {9, 9}, {2, 1, 2}} { // there, not there, and stale
		for _, opts := range []*pgbatch.BatchOptions{nil, fencetest.Partial} {
			fencetest.WantErr(t, m.Load(t.Context(), m.Claim, fencetest.Source("new", ids...), opts), pgerr.ErrInvalid)
		}
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old' OR id > 3`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	noStagingTables(t, m.Pool)
}

// C29: a table under row-level security, into which COPY itself is refused.
func TestCase29ALoadUnderRowLevelSecurity(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	role := "loader_" + m.Pool.Config().ConnConfig.Database[len("fencepost_test_"):]
	quoted := pgx.Identifier{role}.Sanitize()
	fencetest.Exec(t, m.Pool, fmt.Sprintf(`
		CREATE ROLE %[1]s;
		GRANT USAGE ON SCHEMA app, fencepost TO %[1]s;
		GRANT SELECT, INSERT, UPDATE ON app.item TO %[1]s;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost TO %[1]s;
		ALTER TABLE app.item ENABLE ROW LEVEL SECURITY;
		CREATE POLICY seen ON app.item FOR SELECT USING (true);
		CREATE POLICY added ON app.item FOR INSERT WITH CHECK (true);
		CREATE POLICY changed ON app.item FOR UPDATE USING (id <> 2)`, quoted))
	t.Cleanup(func() { // the role outlives the database otherwise
		_, err := m.Pool.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, quoted))
		if err != nil {
			t.Error(err)
		}
	})
	as := func(fn func(tx pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+quoted); err != nil {
				return err
			}
			return fn(tx)
		})
	}
	load := func(ids ...int) error {
		return as(func(tx pgx.Tx) error {
			staged, err := m.Batches.Stage(t.Context(), tx, []string{"id", "value"}, fencetest.Source("new", ids...))
			if err != nil {
				return err
			}
			return staged.Merge(t.Context(), m.Claim, nil)
		})
	}
	update := func(ids ...int) error {
		b, err := m.Batches.Batch(fencetest.Changes("new", ids...))
		if err != nil {
			return err
		}
		return as(func(tx pgx.Tx) error { return b.Update(t.Context(), tx, m.Claim, nil) })
	}
	err := as(func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(t.Context(), pgx.Identifier{"app", "item"}, []string{"id", "value"}, fencetest.Source("new", 7))
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
	// PostgreSQL itself refuses an ON CONFLICT that the policy does not allow.
	if err := load(1, 2); !errors.As(err, &server) || server.Code != "42501" {
		t.Errorf("a load of a row that the policy protects: %v", err)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'new'`); n != 3 {
		t.Errorf("%d rows were written", n)
	}
	database := pgx.Identifier{m.Pool.Config().ConnConfig.Database}.Sanitize()
	fencetest.Exec(t, m.Pool, `REVOKE TEMPORARY ON DATABASE `+database+` FROM PUBLIC`)
	err = load(1)
	if fencetest.WantErr(t, err, pgerr.ErrUnavailable); err == nil || !strings.Contains(err.Error(), "TEMPORARY") {
		t.Errorf("without the privilege: %v", err)
	}
}

func TestBadLoadsAreRefused(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `ALTER TABLE app.item ADD COLUMN made text GENERATED ALWAYS AS (value || '!') STORED`)
	batches := fencetest.BatchWriterOf(t, m.Pool, fencetest.Rows)
	broken := errors.New("the source broke")
	stage := func(columns []string, source pgx.CopyFromSource) error {
		return pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
			_, err := batches.Stage(t.Context(), tx, columns, source)
			return err
		})
	}
	for name, columns := range map[string][]string{
		"no key": {"value"}, "key twice": {"id", "id", "value"}, "column twice": {"id", "value", "value"}, "no columns": nil,
		"token column": {"id", "last_fencing_token"}, "generated": {"id", "made"}, "unknown": {"id", "nothing"},
	} {
		if err := stage(columns, fencetest.Source("x")); !errors.Is(err, pgerr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, row := range map[string][]any{
		"too few":   {1},
		"too many":  {1, "a", "b"},
		"no text":   {1, struct{}{}},
		"no number": {"x", "a"},
	} {
		if err := stage(
			[]string{"id", "value"},
			pgx.CopyFromRows([][]any{{2, "fine"}, row}),
		); !errors.Is(
			err,
			pgerr.ErrInvalid,
		) {
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
	if !errors.Is(err, broken) || errors.Is(err, pgerr.ErrUnavailable) {
		t.Errorf("a broken source: %v", err)
	}
	err = m.Load(t.Context(), m.Claim, pgx.CopyFromRows([][]any{{1, nil}}), nil)
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "23502" {
		t.Errorf("NULL where it cannot be: %v", err)
	}
	if err := m.Load(t.Context(), m.Claim, fencetest.Source("x"), nil); err != nil {
		t.Errorf("an empty load: %v", err)
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	noStagingTables(t, m.Pool)
}

// A column that changes its type between two loads of the same connection changes how its values are sent.
func TestALoadSeesAColumnChangeItsType(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 0)
	config := m.Pool.Config()
	config.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	load := func(value any) error {
		return pgx.BeginFunc(t.Context(), one, func(tx pgx.Tx) error {
			staged, err := m.Batches.Stage(t.Context(), tx, []string{"id", "value"}, pgx.CopyFromRows([][]any{{1, value}}))
			if err != nil {
				return err
			}
			return staged.Merge(t.Context(), m.Claim, nil)
		})
	}
	if err := load("7"); err != nil {
		t.Fatal(err)
	}
	for typ, value := range map[string]any{"bigint": 42, "double precision": 4.5} { // of one length
		fencetest.Exec(t, m.Pool, `ALTER TABLE app.item ALTER value DROP DEFAULT, ALTER value TYPE `+typ+` USING 0`)
		for range 2 {
			err = load(value) // pgx notices that a statement it had prepared is no longer good, and says so once
			if err == nil {
				break
			}
		}
		var got string
		if scanErr := m.Pool.QueryRow(t.Context(), `SELECT value::text FROM app.item WHERE id = 1`).
			Scan(&got); scanErr != nil ||
			got != fmt.Sprint(value) {
			t.Errorf("%s: got %s, want %v (%v, %v)", typ, got, value, err, scanErr)
		}
	}
}
