package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
)

// manyBundle is what a test of many rows works with: a table of rows 1 to n, and a claim of token 5.
type manyBundle struct {
	pool  *pgxpool.Pool
	bulk  *fence.Bulk
	claim fence.Claim
}

func setupMany(t *testing.T, n int) *manyBundle {
	t.Helper()
	pool := setup(t)
	exec(t, pool, `TRUNCATE app.item`)
	exec(t, pool, `INSERT INTO app.item (id, value) SELECT i, 'old' FROM generate_series(1, $1) AS i`, n)
	return &manyBundle{pool: pool, bulk: bulkOf(t, pool, rows), claim: mustRaise(t, pool, claimOf("r", 5))}
}

func bulkOf(t *testing.T, pool *pgxpool.Pool, table fence.Table) *fence.Bulk {
	t.Helper()
	columns, err := fence.Inspect(t.Context(), pool, table)
	if err != nil {
		t.Fatal(err)
	}
	bulk, err := fence.NewBulk(table, columns)
	if err != nil {
		t.Fatal(err)
	}
	return bulk
}

// changes sets a value in the rows with the given ids.
func changes(value string, ids ...int) []fence.Change {
	all := make([]fence.Change, len(ids))
	for i, id := range ids {
		all[i] = fence.Change{Key: fence.Key{id}, Set: fence.Set{"value": value}}
	}
	return all
}

func upTo(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i + 1
	}
	return ids
}

type batchFunc func(b *fence.Batch, ctx context.Context, tx pgx.Tx, c fence.Claim, opts *fence.ManyOptions) error

var partial = &fence.ManyOptions{Partial: true}

// write writes a batch in a transaction of its own, which commits where the batch says that it may. In part a
// *ManyError is no reason not to.
func (m *manyBundle) write(ctx context.Context, batch []fence.Change, opts *fence.ManyOptions, write batchFunc) error {
	b, err := m.bulk.Batch(batch)
	if err != nil {
		return err
	}
	var reported error
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		err := write(b, ctx, tx, m.claim, opts)
		if opts != nil && opts.Partial && errors.As(err, new(*fence.ManyError)) {
			reported = err
			return nil
		}
		return err
	})
	return errors.Join(reported, err)
}

// overlook writes a batch and commits whatever it says.
func (m *manyBundle) overlook(ctx context.Context, batch []fence.Change, write batchFunc) (said, committed error) {
	b, err := m.bulk.Batch(batch)
	if err != nil {
		return err, nil
	}
	committed = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		said = write(b, ctx, tx, m.claim, nil)
		return nil
	})
	return said, committed
}

// load loads rows of id and value.
func (m *manyBundle) load(ctx context.Context, c fence.Claim, source pgx.CopyFromSource, opts *fence.ManyOptions) error {
	var reported error
	err := pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		staged, err := m.bulk.Stage(ctx, tx, []string{"id", "value"}, source)
		if err != nil {
			return err
		}
		err = staged.Merge(ctx, c, opts)
		if opts != nil && opts.Partial && errors.As(err, new(*fence.ManyError)) {
			reported = err
			return nil
		}
		return err
	})
	return errors.Join(reported, err)
}

// source gives the rows with the given ids a value.
func source(value string, ids ...int) pgx.CopyFromSource {
	return pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i], value}, nil })
}

// count counts rows under a condition.
func count(t *testing.T, pool *pgxpool.Pool, condition string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM app.item WHERE `+condition, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// report returns the *ManyError in an error, as short text: counts, and what each listed row met.
func report(err error) string {
	var many *fence.ManyError
	if !errors.As(err, &many) {
		return fmt.Sprintf("no ManyError: %v", err)
	}
	text := fmt.Sprintf("%d of %d written", many.Written, many.Rows)
	for _, f := range many.Failures {
		text += fmt.Sprintf("; %v %s", f.Key[0], outcome(f.Err))
	}
	return text
}

func outcome(err error) string {
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale) && stale.Row:
		return fmt.Sprintf("stale %d < %d", stale.Token, stale.Current)
	case errors.Is(err, fence.ErrNotFound):
		return "missing"
	case errors.Is(err, fence.ErrRefused):
		return "refused"
	}
	return fmt.Sprint(err)
}

// untilWaiting waits for a session of the database to wait for a lock.
func untilWaiting(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for {
		var waiting bool
		err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting {
			return
		}
	}
}
