package pgbatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgledger"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// ending is a transaction during whose work the context ends: right after a number of batches have been answered.
type ending struct {
	pgx.Tx
	left   int
	cancel context.CancelFunc
}

func (e *ending) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	e.left--
	results := e.Tx.SendBatch(ctx, b)
	if e.left > 0 {
		return results
	}
	return &endingResults{BatchResults: results, cancel: e.cancel}
}

type endingResults struct {
	pgx.BatchResults
	cancel context.CancelFunc
}

func (r *endingResults) Close() error {
	defer r.cancel()
	return r.BatchResults.Close()
}

// All or nothing holds even if the error is ignored, and whenever the context ends: also right after rows have been
// written, and right before the transaction is aborted because of them. Nothing is sent under such a context.
func TestAnOverlookedErrorCommitsNothingWheneverTheContextEnds(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 7 WHERE id = 2`)
	batch, err := m.Batches.Batch(fencetest.Changes("new", 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"update": func(ctx context.Context, tx pgx.Tx) error { return batch.Update(ctx, tx, m.Claim, nil) },
		"upsert": func(ctx context.Context, tx pgx.Tx) error { return fencetest.UpsertBatch(batch, ctx, tx, m.Claim, nil) },
		"load": func(ctx context.Context, tx pgx.Tx) error {
			staged, err := m.Batches.Stage(ctx, tx, []string{"id", "value"}, fencetest.Source("new", 1, 2, 3))
			if err != nil {
				return err
			}
			return staged.Merge(ctx, m.Claim, nil)
		},
	}
	const batches = 6 // that each of them sends
	for name, write := range ways {
		for after := 1; after <= batches; after++ {
			ctx, cancel := context.WithCancel(t.Context())
			var said error
			committed := pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
				said = write(ctx, &ending{Tx: tx, left: after, cancel: cancel})
				return nil
			})
			if said == nil || ctx.Err() == nil {
				t.Fatalf("%s, after %d batches: error %v, context %v", name, after, said, ctx.Err())
			}
			if last := after == batches; errors.Is(said, pgerr.ErrStale) != last {
				t.Errorf("%s, after %d batches: %v", name, after, said)
			}
			if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
				t.Fatalf("%s, after %d batches: %d rows were written; the commit said %v", name, after, n, committed)
			}
			cancel()
		}
	}
}

// nested counts our open savepoints in a transaction, which cannot be used afterwards.
func nested(ctx context.Context, tx pgx.Tx) (n int) {
	for {
		if _, err := tx.Exec(ctx, `RELEASE SAVEPOINT fencepost_batch`); err != nil {
			return n
		}
		n++
	}
}

// Batches of one transaction do not nest: 64 of a server process are the most whose state others can see cheaply.
func TestSavepointsOfBatchesDoNotNest(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	batch, err := m.Batches.Batch(fencetest.Changes("new", 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	update := func(tx pgx.Tx) error { return batch.Update(ctx, tx, m.Claim, nil) }
	for name, c := range map[string]struct {
		work func(tx pgx.Tx) error
		most int
	}{
		"batches": {func(tx pgx.Tx) error {
			for range 5 {
				if err := update(tx); err != nil {
					return err
				}
			}
			return nil
		}, 1},
		"in savepoints that are rolled back": {func(tx pgx.Tx) error {
			for range 3 {
				within, err := tx.Begin(ctx)
				if err == nil {
					err = errors.Join(update(within), update(within), within.Rollback(ctx))
				}
				if err != nil {
					return err
				}
			}
			return update(tx)
		}, 1},
		"in savepoints after one at the top": {func(tx pgx.Tx) error {
			err := update(tx)
			for range 3 {
				err = errors.Join(err, pgx.BeginFunc(ctx, tx, update))
			}
			return err
		}, 1},
		"load": {func(tx pgx.Tx) error {
			staged, err := m.Batches.Stage(ctx, tx, []string{"id", "value"}, fencetest.Source("new", 1, 2, 3))
			if err != nil {
				return err
			}
			return staged.Merge(ctx, m.Claim, nil)
		}, 0},
	} {
		tx, err := m.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.work(tx); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if n := nested(ctx, tx); n > c.most {
			t.Errorf("%s: %d savepoints are open, want %d at most", name, n, c.most)
		}
		_ = tx.Rollback(ctx)
	}
}

// A caller that has left rows open on a connection is told so: the server is not at fault, and a retry does not help.
func TestAConnectionThatIsInUseIsTheCallersMistake(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	batch, err := m.Batches.Batch(fencetest.Changes("new", 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	entry := pgledger.Entry{Namespace: "test", Key: "k", Resource: "r"}
	for name, call := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"guard":  func(ctx context.Context, tx pgx.Tx) error { return pgclaim.Enter(ctx, tx, m.Claim) },
		"commit": pgcommit.Commit,
		"marked": func(ctx context.Context, tx pgx.Tx) error {
			return pgcommit.CommitMarked(ctx, tx, pgcommit.Mark{XID: "1"})
		},
		"update":   func(ctx context.Context, tx pgx.Tx) error { return fencetest.Update(ctx, tx, 9, 1, "x") },
		"batch":    func(ctx context.Context, tx pgx.Tx) error { return batch.Update(ctx, tx, m.Claim, nil) },
		"end once": func(ctx context.Context, tx pgx.Tx) error { return pgledger.End(ctx, tx, entry, []byte("1")) },
		"stage": func(ctx context.Context, tx pgx.Tx) error {
			_, err := m.Batches.Stage(ctx, tx, []string{"id", "value"}, fencetest.Source("new", 1))
			return err
		},
		"modify": func(ctx context.Context, tx pgx.Tx) error {
			return pgrow.ModifyRow(ctx, tx, m.Claim, fencetest.Rows, pgtable.Key{1}, []string{"value"},
				func(pgx.Rows) error { return nil }, nil)
		},
		"raise": func(ctx context.Context, tx pgx.Tx) error { return pgclaim.Raise(ctx, tx.Conn(), m.Claim, nil) },
	} {
		tx, err := m.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open, err := tx.Query(t.Context(), `SELECT generate_series(1, 3)`)
		if err != nil {
			t.Fatal(err)
		}
		fencetest.WantOnly(t, name, call(t.Context(), tx), pgerr.ErrInvalid)
		open.Close()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Errorf("%s: the connection is of no use any more: %v", name, err)
		}
	}
}
