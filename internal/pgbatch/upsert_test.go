package pgbatch_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
)

// inserts upserts rows with the given ids in tx.
func inserts(
	ctx context.Context, m *fencetest.BatchBundle, tx pgx.Tx, opts *pgbatch.BatchOptions, ids ...int,
) (int, error) {
	batch, err := m.Batches.Batch(fencetest.Changes("new", ids...))
	if err != nil {
		return 0, err
	}
	return batch.Upsert(ctx, tx, m.Claim, opts)
}

// A batch of upserts reports how many rows it inserted: in one statement and in several, whole and in part, and twice
// in one transaction.
func TestABatchOfUpsertsCountsWhatItInserted(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `UPDATE app.item SET last_fencing_token = 9 WHERE id = 2`) // stale, for the part
	err := pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
		if n, err := inserts(t.Context(), m, tx, nil, 1, 3, 4, 5); n != 2 || err != nil {
			t.Errorf("whole: %d inserted, %v", n, err)
		}
		n, err := inserts(t.Context(), m, tx, fencetest.Partial, 1, 2, 5, 6)
		var report *pgbatch.BatchError
		if !errors.As(err, &report) || n != 1 || report.Written != 3 || report.Stale != 1 {
			t.Errorf("in part: %d inserted, %v", n, err)
		}
		if n, err := inserts(t.Context(), m, tx, nil, 1, 3, 4, 5, 6); n != 0 || err != nil {
			t.Errorf("again: %d inserted, %v", n, err)
		}
		// More than one statement takes, the known ones among them; in the order of the keys, and not.
		many := make([]int, 0, 25_000)
		for id := 1; len(many) < cap(many); id++ {
			if id != 2 {
				many = append(many, id)
			}
		}
		slices.Reverse(many)
		if n, err := inserts(t.Context(), m, tx, nil, many...); n != len(many)-5 || err != nil {
			t.Errorf("in parts: %d inserted, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := fencetest.Count(t, m.Pool, `value = 'new'`); n != 25_000 {
		t.Errorf("%d rows were written", n)
	}
	// A batch that writes nothing inserts nothing.
	tx, err := m.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if n, err := inserts(t.Context(), m, tx, nil, 2, 30_000); n != 0 || err == nil {
		t.Errorf("stale: %d inserted, %v", n, err)
	}
}

// A row that a trigger keeps from being updated is neither inserted nor updated, and does not count. What was recorded
// for a row earlier in the transaction does not count either.
func TestABatchOfUpsertsDoesNotCountWhatATriggerKeepsOut(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	fencetest.Exec(t, m.Pool, `CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	fencetest.Exec(t, m.Pool, `CREATE TRIGGER swallow BEFORE UPDATE ON app.item
		FOR EACH ROW WHEN (OLD.id = 3) EXECUTE FUNCTION app.swallow()`)
	err := pgx.BeginFunc(t.Context(), m.Pool, func(tx pgx.Tx) error {
		for _, batch := range []struct {
			ids               []int
			inserted, written int
		}{{[]int{3}, 0, 0}, {[]int{3, 10}, 1, 1}, {[]int{1, 3, 2, 11, 12}, 2, 4}, {[]int{1, 3}, 0, 1}} {
			n, err := inserts(t.Context(), m, tx, fencetest.Partial, batch.ids...)
			var report *pgbatch.BatchError
			if !errors.As(err, &report) || n != batch.inserted || report.Written != batch.written || report.Refused != 1 {
				t.Errorf("%v: %d inserted, %v", batch.ids, n, err)
			}
		}
		if _, err := tx.Exec(t.Context(), `DELETE FROM app.item WHERE id = 1`); err != nil {
			return err
		}
		if n, err := inserts(t.Context(), m, tx, fencetest.Partial, 1, 3); n != 1 || err == nil {
			t.Errorf("a row that was noted before: %d inserted, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
