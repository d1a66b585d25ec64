package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
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

// All or nothing holds where the error is overlooked too, and whenever the context ends: also right after rows have
// been written, and right before the transaction is aborted on their account. Nothing is sent under such a context.
func TestAnOverlookedErrorCommitsNothingWheneverTheContextEnds(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	exec(t, m.pool, `UPDATE app.item SET last_fencing_token = 7 WHERE id = 2`)
	batch, err := m.bulk.Batch(changes("new", 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"update": func(ctx context.Context, tx pgx.Tx) error { return batch.Update(ctx, tx, m.claim, nil) },
		"upsert": func(ctx context.Context, tx pgx.Tx) error { return batch.Upsert(ctx, tx, m.claim, nil) },
		"load": func(ctx context.Context, tx pgx.Tx) error {
			staged, err := m.bulk.Stage(ctx, tx, []string{"id", "value"}, source("new", 1, 2, 3))
			if err != nil {
				return err
			}
			return staged.Merge(ctx, m.claim, nil)
		},
	}
	const batches = 6 // that each of them sends
	for name, write := range ways {
		for after := 1; after <= batches; after++ {
			ctx, cancel := context.WithCancel(t.Context())
			var said error
			committed := pgx.BeginFunc(t.Context(), m.pool, func(tx pgx.Tx) error {
				said = write(ctx, &ending{Tx: tx, left: after, cancel: cancel})
				return nil
			})
			if said == nil || ctx.Err() == nil {
				t.Fatalf("%s, after %d batches: error %v, context %v", name, after, said, ctx.Err())
			}
			if last := after == batches; errors.Is(said, fence.ErrStale) != last {
				t.Errorf("%s, after %d batches: %v", name, after, said)
			}
			if n := count(t, m.pool, `value <> 'old'`); n != 0 {
				t.Fatalf("%s, after %d batches: %d rows were written; the commit said %v", name, after, n, committed)
			}
			cancel()
		}
	}
}

// nested counts the savepoints of ours that are open in a transaction, which is of no use afterwards.
func nested(ctx context.Context, tx pgx.Tx) (n int) {
	for {
		if _, err := tx.Exec(ctx, `RELEASE SAVEPOINT fencepost_many`); err != nil {
			return n
		}
		n++
	}
}

// Batches of one transaction do not nest: 64 of a server process are the most whose state others can see cheaply.
func TestSavepointsOfBatchesDoNotNest(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	batch, err := m.bulk.Batch(changes("new", 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	update := func(tx pgx.Tx) error { return batch.Update(ctx, tx, m.claim, nil) }
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
			staged, err := m.bulk.Stage(ctx, tx, []string{"id", "value"}, source("new", 1, 2, 3))
			if err != nil {
				return err
			}
			return staged.Merge(ctx, m.claim, nil)
		}, 0},
	} {
		tx, err := m.pool.Begin(ctx)
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

// Whoever has left rows open on a connection is told so: it is no fault of the server's, and trying again does not help.
func TestAConnectionThatIsInUseIsTheCallersMistake(t *testing.T) {
	t.Parallel()
	m := setupMany(t, 3)
	batch, err := m.bulk.Batch(changes("new", 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	entry := fence.Entry{Namespace: "test", Key: "k", Resource: "r"}
	for name, call := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"guard":    func(ctx context.Context, tx pgx.Tx) error { return fence.Guard(ctx, tx, m.claim) },
		"commit":   fence.Commit,
		"marked":   func(ctx context.Context, tx pgx.Tx) error { return fence.CommitMarked(ctx, tx, fence.Mark{XID: "1"}) },
		"update":   func(ctx context.Context, tx pgx.Tx) error { return update(ctx, tx, 9, 1, "x") },
		"batch":    func(ctx context.Context, tx pgx.Tx) error { return batch.Update(ctx, tx, m.claim, nil) },
		"end once": func(ctx context.Context, tx pgx.Tx) error { return fence.EndOnce(ctx, tx, entry, []byte("1")) },
		"begin once": func(ctx context.Context, tx pgx.Tx) error {
			_, _, err := fence.BeginOnce(ctx, tx, entry)
			return err
		},
		"stage": func(ctx context.Context, tx pgx.Tx) error {
			_, err := m.bulk.Stage(ctx, tx, []string{"id", "value"}, source("new", 1))
			return err
		},
		"modify": func(ctx context.Context, tx pgx.Tx) error {
			return fence.ModifyRow(ctx, tx, m.claim, rows, fence.Key{1}, []string{"value"}, func(pgx.Rows) error { return nil }, nil)
		},
		"raise": func(ctx context.Context, tx pgx.Tx) error { return fence.Raise(ctx, tx.Conn(), m.claim, nil) },
	} {
		tx, err := m.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open, err := tx.Query(t.Context(), `SELECT generate_series(1, 3)`)
		if err != nil {
			t.Fatal(err)
		}
		wantOnly(t, name, call(t.Context(), tx), fence.ErrInvalid)
		open.Close()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Errorf("%s: the connection is of no use any more: %v", name, err)
		}
	}
}
