package pgbatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// C21 c: nothing is written, and every stale and missing key is reported, with the current tokens.
func TestCase21ABatchIsWrittenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 9)
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 10 + id WHERE id IN (2, 4, 6)`)
	batch := fencetest.Changes("new", upTo(10)...) // 10 is missing
	for range 2 {                                  // also the second time
		err := m.Write(t.Context(), batch, nil, (*pgbatch.Batch).Update)
		if got, want := report(
			err,
		), "0 of 10 written; 2 stale 5 < 12; 4 stale 5 < 14; 6 stale 5 < 16; 10 missing"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		fencetest.WantErr(t, err, pgerr.ErrStale, pgerr.ErrNotFound)
		if errors.Is(err, pgerr.ErrRefused) {
			t.Errorf("no row was refused: %v", err)
		}
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old' OR last_fencing_token NOT IN (0, 12, 14, 16)`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	err := m.Write(t.Context(), batch, fencetest.Partial, (*pgbatch.Batch).Update)
	if got, want := report(
		err,
	), "6 of 10 written; 2 stale 5 < 12; 4 stale 5 < 14; 6 stale 5 < 16; 10 missing"; got != want {
		t.Errorf("in part: got %s, want %s", got, want)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'new' AND last_fencing_token = 5`); n != 6 {
		t.Errorf("in part %d rows were written", n)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'old' AND last_fencing_token > 5`); n != 3 {
		t.Errorf("%d stale rows are as they were", n)
	}
}

// An upsert inserts missing rows, compares the stored token, and is all or nothing as well.
func TestAnUpsertOfManyComparesTheStoredToken(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 7 WHERE id = 2`)
	batch := fencetest.Changes("new", 4, 3, 2, 1)
	err := m.Write(t.Context(), batch, nil, fencetest.UpsertBatch)
	if got, want := report(err), "0 of 4 written; 2 stale 5 < 7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	err = m.Write(t.Context(), batch, fencetest.Partial, fencetest.UpsertBatch)
	if got, want := report(err), "3 of 4 written; 2 stale 5 < 7"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'new' AND last_fencing_token = 5`); n != 3 {
		t.Errorf("%d rows were written", n)
	}
	// The same holder writes the rows again.
	if err := m.Write(t.Context(), fencetest.Changes("again", 1, 3, 4, 5), nil, fencetest.UpsertBatch); err != nil {
		t.Error(err)
	}
	if err := m.Write(t.Context(), fencetest.Changes("again", 1, 3, 4, 5), nil, (*pgbatch.Batch).Update); err != nil {
		t.Error(err)
	}
}

// If the error is ignored and the transaction committed, PostgreSQL rolls back.
func TestAnOverlookedReportCommitsNothing(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	for name, write := range map[string]fencetest.BatchFunc{
		"update": (*pgbatch.Batch).Update,
		"upsert": fencetest.UpsertBatch,
	} {
		fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 7 WHERE id = 2`)
		said, committed := m.Overlook(t.Context(), fencetest.Changes("new", 1, 2, 3), write)
		fencetest.WantErr(t, said, pgerr.ErrStale)
		if !errors.Is(committed, pgx.ErrTxCommitRollback) {
			t.Errorf("%s: the commit said %v", name, committed)
		}
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// C18 c, d for many: the reported tokens are those that are committed, not those of the statement's snapshot.
func TestABatchThatWaitedTellsTheCommittedTokens(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]fencetest.BatchFunc{
		"update": (*pgbatch.Batch).Update,
		"upsert": fencetest.UpsertBatch,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fencetest.SetupBatch(t, 4)
			other, err := m.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Exec(t.Context(), `UPDATE app.item SET last_fencing_token = 9 WHERE id = 3`); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Exec(t.Context(), `DELETE FROM app.item WHERE id = 2`); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- m.Write(t.Context(), fencetest.Changes("new", 1, 2, 3, 4), nil, write) }()
			untilWaiting(t, m.Pool)
			if err := other.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := "0 of 4 written; 2 missing; 3 stale 5 < 9"
			if name == "upsert" {
				want = "0 of 4 written; 3 stale 5 < 9"
			}
			if got := report(<-done); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
				t.Errorf("%d rows were written", n)
			}
		})
	}
}

// Control of TestABatchThatWaitedTellsTheCommittedTokens: asked in the statement that waits, the token is an old one.
func TestControlTheWaitingStatementSeesAnOldToken(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 1)
	other, err := m.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `UPDATE app.item SET last_fencing_token = 9 WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	seen := make(chan int, 1)
	go func() {
		var tok int
		err := m.Pool.QueryRow(context.WithoutCancel(t.Context()), `WITH written AS (
			UPDATE app.item SET value = 'new' WHERE id = 1 AND last_fencing_token <= 5 RETURNING id)
			SELECT last_fencing_token FROM app.item AS t WHERE id = 1 AND NOT EXISTS (SELECT FROM written)`).Scan(&tok)
		if err != nil {
			tok = -1
		}
		seen <- tok
	}()
	untilWaiting(t, m.Pool)
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tok := <-seen; tok != 0 {
		t.Errorf("the statement saw token %d: no need for a second one", tok)
	}
}

// C21 b: a key that appears twice is refused before anything is sent.
func TestCase21AKeyStandsInABatchOnce(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	set := pgtable.Set{"value": "new"}
	var five int32 = 1
	for name, batch := range map[string][]pgbatch.Change{
		"the same":    {{Key: pgtable.Key{1}, Set: set}, {Key: pgtable.Key{2}, Set: set}, {Key: pgtable.Key{1}, Set: set}},
		"other types": {{Key: pgtable.Key{1}, Set: set}, {Key: pgtable.Key{int64(1)}, Set: set}},
		"a pointer":   {{Key: pgtable.Key{1}, Set: set}, {Key: pgtable.Key{&five}, Set: set}},
		"as text":     {{Key: pgtable.Key{1}, Set: set}, {Key: pgtable.Key{"1"}, Set: set}},
	} {
		if _, err := m.Batches.Batch(batch); !errors.Is(err, pgerr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// C21 b: keys that differ in Go but are equal in PostgreSQL are refused as well, and nothing is written.
func TestCase21KeysThatAreOneInPostgreSQL(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 0)
	fencetest.Exec(t, m.Pool, `
		CREATE COLLATION app.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE app.name (name text COLLATE app.loose PRIMARY KEY, value text NOT NULL,
			last_fencing_token bigint NOT NULL DEFAULT 0);
		INSERT INTO app.name VALUES ('Ann', 'old'), ('Bob', 'old')`)
	names := &fencetest.BatchBundle{
		Pool: m.Pool, Claim: m.Claim,
		Batches: fencetest.BatchWriterOf(t, m.Pool, pgtable.Table{Schema: "app", Name: "name", Key: []string{"name"}}),
	}
	batch := []pgbatch.Change{
		{Key: pgtable.Key{"ann"}, Set: pgtable.Set{"value": "1"}},
		{Key: pgtable.Key{"BOB"}, Set: pgtable.Set{"value": "2"}},
		{Key: pgtable.Key{"ANN"}, Set: pgtable.Set{"value": "3"}},
	}
	many := slices.Clone(batch) // more than one part
	for i := range 20_000 {
		many = append(many, pgbatch.Change{Key: pgtable.Key{fmt.Sprint(i)}, Set: pgtable.Set{"value": "4"}})
	}
	slices.Reverse(many[1:])
	for name, batch := range map[string][]pgbatch.Change{"one part": batch, "more": many} {
		for how, write := range map[string]fencetest.BatchFunc{
			"update": (*pgbatch.Batch).Update,
			"upsert": fencetest.UpsertBatch,
		} {
			for _, opts := range []*pgbatch.BatchOptions{nil, fencetest.Partial} {
				fencetest.WantErr(t, names.Write(t.Context(), batch, opts, write), pgerr.ErrInvalid)
				var n int
				err := m.Pool.QueryRow(t.Context(), `SELECT count(*) FROM app.name WHERE value <> 'old'`).Scan(&n)
				if err != nil || n != 0 {
					t.Errorf("%s, %s: %d rows were written, %v", name, how, n, err)
				}
			}
		}
	}
	if err := names.Write(t.Context(), batch[1:], nil, (*pgbatch.Batch).Update); err != nil {
		t.Errorf("keys that differ: %v", err)
	}
	loader := func() error {
		return pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
			staged, err := names.Batches.Stage(
				t.Context(),
				tx,
				[]string{"name", "value"},
				pgx.CopyFromRows([][]any{{"x", "1"}, {"X", "1"}}),
			)
			if err != nil {
				return err
			}
			return staged.Merge(t.Context(), m.Claim, nil)
		})
	}
	fencetest.WantErr(t, loader(), pgerr.ErrInvalid)
}

// C21 d: an empty batch only guards, and a big one is one transaction.
func TestCase21EmptyAndBigBatches(t *testing.T) {
	t.Parallel()
	const n = 70_000
	m := fencetest.SetupBatch(t, n)
	if err := m.Write(t.Context(), nil, nil, (*pgbatch.Batch).Update); err != nil {
		t.Error(err)
	}
	ids := upTo(n)
	rand.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for name, write := range map[string]fencetest.BatchFunc{
		"updated":  (*pgbatch.Batch).Update,
		"upserted": fencetest.UpsertBatch,
	} {
		if err := m.Write(t.Context(), fencetest.Changes(name, ids...), nil, write); err != nil {
			t.Fatal(err)
		}
		if got := fencetest.Count(t, m.Pool, `value = $1 AND last_fencing_token = 5`, name); got != n {
			t.Errorf("%d rows were %s", got, name)
		}
		var transactions int
		if err := m.Pool.QueryRow(t.Context(), `SELECT count(DISTINCT xmin::text) FROM app.item`).
			Scan(&transactions); err != nil ||
			transactions != 1 {
			t.Errorf("%s in %d transactions, %v", name, transactions, err)
		}
	}
	fencetest.Exec(t, m.Pool, `DELETE FROM app.item WHERE id = $1`, ids[n-1])
	err := m.Write(t.Context(), fencetest.Changes("late", ids...), nil, (*pgbatch.Batch).Update)
	if got, want := report(err), fmt.Sprintf("0 of %d written; %d missing", n, ids[n-1]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := fencetest.Count(t, m.Pool, `value = 'late'`); got != 0 {
		t.Errorf("%d rows were written", got)
	}
	overtaken := m.Claim
	fencetest.MustRaise(t, m.Pool, fencetest.ClaimOf("r", 6))
	m.Claim = overtaken
	fencetest.WantStale(t, m.Write(t.Context(), nil, nil, (*pgbatch.Batch).Update), 5, 6)
}

// Values that are big in bytes are sent in parts as well.
func TestABatchIsSplitByItsSizeToo(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 20)
	big := strings.Repeat("x", 3<<20)
	if err := m.Write(t.Context(), fencetest.Changes(big, upTo(20)...), nil, (*pgbatch.Batch).Update); err != nil {
		t.Fatal(err)
	}
	if n := fencetest.Count(t, m.Pool, `length(value) = $1`, len(big)); n != 20 {
		t.Errorf("%d rows were written", n)
	}
}

// nestedLoops makes PostgreSQL lock rows in the order in which they are given, so that batches in random order collide.
func nestedLoops(t *testing.T, of *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := of.Config()
	for _, off := range []string{"enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_bitmapscan"} {
		config.ConnConfig.RuntimeParams[off] = "off"
	}
	config.ConnConfig.RuntimeParams["deadlock_timeout"] = "20ms"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// batches runs 200 batches of 50 random rows out of 60, in random order, from 8 goroutines at once.
func batches(t *testing.T, write func(ids []int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if err := write(rand.Perm(60)[:50]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// C21 a: batches of one claim do not deadlock, whatever order their rows are given in. There is no retry here that
// could hide one.
func TestCase21BatchesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 60)
	m.Pool = nestedLoops(t, m.Pool)
	var turn atomic.Int64
	batches(t, func(ids []int) error {
		for i := range ids {
			ids[i]++
		}
		write := []fencetest.BatchFunc{(*pgbatch.Batch).Update, fencetest.UpsertBatch}[turn.Add(1)%2]
		return m.Write(t.Context(), fencetest.Changes("new", ids...), nil, write)
	})
	if n := fencetest.Count(t, m.Pool, `value = 'new' AND last_fencing_token = 5`); n != 60 {
		t.Errorf("%d rows were written", n)
	}
}

// Control of TestCase21BatchesDoNotDeadlock: by hand, under the same guard, they do.
func TestControlBatchesByHandDeadlock(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 60)
	m.Pool = nestedLoops(t, m.Pool)
	var met atomic.Bool
	for try := 0; try < 20 && !met.Load(); try++ {
		batches(t, func(ids []int) error {
			err := pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
				if err := pgclaim.Enter(t.Context(), tx, m.Claim); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), `UPDATE app.item AS t SET value = 'new', last_fencing_token = 5
					FROM unnest($1::bigint[]) AS u (id) WHERE t.id = u.id + 1`, ids)
				return err
			})
			var server *pgconn.PgError
			if errors.As(err, &server) && server.Code == "40P01" {
				met.Store(true)
				return nil
			}
			return err
		})
	}
	if !met.Load() {
		t.Error("no deadlock: the test of batches shows nothing")
	}
}

// I3 for many: once a newer claim has committed, nothing is written, before the new holder has touched a row.
func TestAnOvertakenHolderWritesNoBatch(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.MustRaise(t, m.Pool, fencetest.ClaimOf("r", 6))
	for _, opts := range []*pgbatch.BatchOptions{nil, fencetest.Partial} {
		fencetest.WantStale(t, m.Write(t.Context(), fencetest.Changes("new", 1, 2, 3), opts, (*pgbatch.Batch).Update), 5, 6)
		fencetest.WantStale(t, m.Write(t.Context(), fencetest.Changes("new", 1, 2, 3, 4), opts, fencetest.UpsertBatch), 5, 6)
		fencetest.WantStale(t, m.Load(t.Context(), m.Claim, fencetest.Source("new", 1, 2, 3, 4), opts), 5, 6)
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	// Control: the row's own comparison alone lets it pass.
	tag, err := m.Pool.Exec(
		t.Context(),
		`UPDATE app.item SET value = 'new', last_fencing_token = 5 WHERE last_fencing_token <= 5`,
	)
	if err != nil || tag.RowsAffected() != 3 {
		t.Errorf("without the guard %v, %v: the test shows nothing", tag, err)
	}
}

// C18: a row that a trigger or a policy keeps from changing is reported as refused, not passed over.
func TestSwallowedRowsOfABatchAreRefused(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 4)
	fencetest.Exec(t, m.Pool, `
		CREATE FUNCTION app.swallow() RETURNS trigger
			LANGUAGE plpgsql AS 'BEGIN IF NEW.id IN (2, 9) THEN RETURN NULL; END IF; RETURN NEW; END';
		CREATE TRIGGER swallow BEFORE INSERT OR UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.swallow();
		ALTER TABLE app.item DISABLE TRIGGER swallow;
		UPDATE app.item SET last_fencing_token = 5; -- rows of this very claim are no exception
		ALTER TABLE app.item ENABLE TRIGGER swallow`)
	for name, step := range map[string]struct {
		want string
		do   func(opts *pgbatch.BatchOptions) error
	}{
		"update": {"; 2 refused", func(opts *pgbatch.BatchOptions) error {
			return m.Write(t.Context(), fencetest.Changes("new", 1, 2, 3), opts, (*pgbatch.Batch).Update)
		}},
		"upsert": {"; 2 refused; 9 refused", func(opts *pgbatch.BatchOptions) error {
			return m.Write(t.Context(), fencetest.Changes("new", 1, 2, 3, 9), opts, fencetest.UpsertBatch)
		}},
		"load": {"; 2 refused; 9 refused", func(opts *pgbatch.BatchOptions) error {
			return m.Load(t.Context(), m.Claim, fencetest.Source("new", 1, 2, 3, 9), opts)
		}},
	} {
		fencetest.Exec(t, m.Pool, `UPDATE app.item SET value = 'old'`)
		if got := report(step.do(nil)); !strings.HasPrefix(got, "0 of ") || !strings.HasSuffix(got, "written"+step.want) {
			t.Errorf("%s: %s, want %s", name, got, step.want)
		}
		if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
			t.Errorf("%s: %d rows were written", name, n)
		}
		if got := report(
			step.do(fencetest.Partial),
		); !strings.HasPrefix(got, "2 of ") ||
			!strings.HasSuffix(got, "written"+step.want) {
			t.Errorf("%s in part: %s, want %s", name, got, step.want)
		}
		if n := fencetest.Count(t, m.Pool, `value = 'new'`); n != 2 {
			t.Errorf("%s in part: %d rows were written", name, n)
		}
	}
}

func TestBadBatchesAreRefused(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `ALTER TABLE app.item ADD COLUMN made text GENERATED ALWAYS AS (value || '!') STORED`)
	batches := fencetest.BatchWriterOf(t, m.Pool, fencetest.Rows)
	set := func(columns ...string) pgtable.Set {
		s := pgtable.Set{}
		for _, c := range columns {
			s[c] = "x"
		}
		return s
	}
	for name, batch := range map[string][]pgbatch.Change{
		"no such column":   {{Key: pgtable.Key{1}, Set: set("nothing")}},
		"token column":     {{Key: pgtable.Key{1}, Set: set("last_fencing_token")}},
		"key column":       {{Key: pgtable.Key{1}, Set: set("id")}},
		"generated column": {{Key: pgtable.Key{1}, Set: set("made")}},
		"long key":         {{Key: pgtable.Key{1, 2}, Set: set("value")}},
		"no key":           {{Set: set("value")}},
		"other columns":    {{Key: pgtable.Key{1}, Set: set("value")}, {Key: pgtable.Key{2}, Set: set("updated_at")}},
		"more columns": {
			{Key: pgtable.Key{1}, Set: set("value")},
			{Key: pgtable.Key{2}, Set: set("value", "updated_at")},
		},
		"fewer columns": {{Key: pgtable.Key{1}, Set: set("value")}, {Key: pgtable.Key{2}}},
	} {
		if _, err := batches.Batch(batch); !errors.Is(err, pgerr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fencetest.WantErr(
		t,
		m.Write(t.Context(), []pgbatch.Change{{Key: pgtable.Key{1}}}, nil, (*pgbatch.Batch).Update),
		pgerr.ErrInvalid,
	)
	fencetest.WantErr(
		t,
		m.Write(
			t.Context(),
			[]pgbatch.Change{{Key: pgtable.Key{1}, Set: pgtable.Set{"value": struct{}{}}}},
			nil,
			(*pgbatch.Batch).Update,
		),
		pgerr.ErrInvalid,
	)
	fencetest.WantErr(
		t,
		m.Write(
			t.Context(),
			[]pgbatch.Change{{Key: pgtable.Key{struct{}{}}, Set: set("value")}},
			nil,
			(*pgbatch.Batch).Update,
		),
		pgerr.ErrInvalid,
	)
	if _, err := pgbatch.NewBatchWriter(fencetest.Rows, nil); !errors.Is(err, pgerr.ErrInvalid) {
		t.Errorf("no columns: %v", err)
	}
}

// Values of any type reach their columns as they do when sent one by one, in every mode of pgx.
func TestABatchTakesValuesOfAnyType(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 0)
	fencetest.Exec(t, m.Pool, `
		CREATE TYPE app.mood AS ENUM ('good', 'bad');
		CREATE DOMAIN app.short AS varchar(3) CHECK (VALUE <> 'no');
		CREATE TABLE app."Every.thing" (
			"Id" uuid, "select" integer, mood app.mood, moods app.mood[], short app.short, numbers integer[],
			grid integer[], doc jsonb,
			amount numeric(10, 2), at timestamptz, raw bytea, fixed char(4), flag boolean, ratio float8, note text,
			"token ""x" bigint NOT NULL DEFAULT 0, PRIMARY KEY ("Id", "select"))`)
	table := pgtable.Table{Schema: "app", Name: "Every.thing", Key: []string{"Id", "select"}, Token: `token "x`}
	at := time.Date(2026, 11, 29, 1, 2, 3, 4000, time.UTC)
	const id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
	set := pgtable.Set{
		"mood": "good", "moods": "{good,bad}", "short": "yes", "numbers": []int{1, 2}, "grid": [][]int32{{1, 2}, {3, 4}},
		"doc": map[string]any{"a": "\"}{,"}, "amount": 12.5, "at": at, "raw": []byte{0, 1, 255}, "fixed": "ab",
		"flag": true, "ratio": 0.1, "note": "{\"a\",NULL}\\ é",
	}
	null := pgtable.Set{}
	for column := range set {
		null[column] = nil
	}
	for mode := range map[pgx.QueryExecMode]bool{
		pgx.QueryExecModeCacheStatement: true, pgx.QueryExecModeCacheDescribe: true, pgx.QueryExecModeDescribeExec: true,
		pgx.QueryExecModeExec: true, pgx.QueryExecModeSimpleProtocol: true,
	} {
		config := m.Pool.Config()
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		every := &fencetest.BatchBundle{Pool: pool, Claim: m.Claim, Batches: fencetest.BatchWriterOf(t, pool, table)}
		fencetest.Exec(t, pool, `TRUNCATE app."Every.thing"`)
		batch := []pgbatch.Change{{Key: pgtable.Key{id, 1}, Set: set}, {Key: pgtable.Key{[16]byte{1}, int16(2)}, Set: null}}
		for _, write := range []fencetest.BatchFunc{fencetest.UpsertBatch, (*pgbatch.Batch).Update} {
			if err := every.Write(t.Context(), batch, nil, write); err != nil {
				t.Fatalf("%v: %v", mode, err)
			}
		}
		var got string
		err = pool.QueryRow(t.Context(), `
		SELECT concat_ws('|', "Id", "select", mood, moods, short, numbers, grid, doc, amount, at AT TIME ZONE 'UTC', raw,
			fixed || '.', flag, ratio, note, "token ""x") FROM app."Every.thing" WHERE "select" = 1`).
			Scan(&got)
		want := id + `|1|good|{good,bad}|yes|{1,2}|{{1,2},{3,4}}|{"a": "\"}{,"}|12.50|2026-11-29 ` +
			`01:02:03.000004|\x0001ff|ab.|t|0.1|{"a",NULL}\ é|5`
		if err != nil || got != want {
			t.Errorf("%v: got %s, want %s (%v)", mode, got, want, err)
		}
		var nulls int
		err = pool.QueryRow(t.Context(), `
		SELECT num_nulls(mood, moods, short, numbers, grid, doc, amount, at, raw, fixed, flag, ratio, note)
			FROM app."Every.thing" WHERE "select" = 2 AND "token ""x" = 5`).
			Scan(&nulls)
		if err != nil || nulls != len(set) {
			t.Errorf("%v: %d NULLs, %v", mode, nulls, err)
		}
		// A value that is too long is refused and not truncated, as when sent alone; so is one that a domain forbids.
		for value, code := range map[string]string{"long": "22001", "no": "23514"} {
			refused := []pgbatch.Change{{Key: pgtable.Key{id, 1}, Set: pgtable.Set{"short": value}}}
			err := every.Write(t.Context(), refused, nil, (*pgbatch.Batch).Update)
			var server *pgconn.PgError
			if !errors.As(err, &server) || server.Code != code {
				t.Errorf("%v: %q gives %v, want %s", mode, value, err, code)
			}
		}
		pool.Close()
	}
}

// Behind a pooler in transaction mode, with the one setting that it needs.
func TestManyRowsBehindAPooler(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 60)
	pooler := testenv.PgBouncer(t, m.Pool.Config().ConnString(), nil)
	config, err := pgxpool.ParseConfig(pooler.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if m.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Pool.Close)
	var turn atomic.Int64
	batches(t, func(ids []int) error {
		for i := range ids {
			ids[i]++
		}
		switch turn.Add(1) % 4 {
		case 0:
			return m.Write(t.Context(), fencetest.Changes("new", ids...), nil, (*pgbatch.Batch).Update)
		case 1:
			return m.Write(t.Context(), fencetest.Changes("new", ids...), nil, fencetest.UpsertBatch)
		case 2:
			return m.Load(t.Context(), m.Claim, fencetest.Source("new", ids...), nil)
		default: // a load that fails leaves nothing to the next user of the connection
			if err := m.Load(
				t.Context(),
				m.Claim,
				fencetest.Source("new", append(ids, ids[0])...),
				nil,
			); !errors.Is(
				err,
				pgerr.ErrInvalid,
			) {
				return fmt.Errorf("a key twice: %w", err)
			}
			return nil
		}
	})
	noStagingTables(t, m.Pool)
}
