package fencetest

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// BatchBundle is the fixture of a batch test: a table of rows 1 to n, and a claim of token 5.
type BatchBundle struct {
	Pool    *pgxpool.Pool
	Batches *pgbatch.BatchWriter
	Claim   pgclaim.Claim
}

// SetupBatch fills the table with rows 1 to n.
func SetupBatch(t *testing.T, n int) *BatchBundle {
	t.Helper()
	pool := Setup(t)
	Exec(t, pool, `TRUNCATE app.item`)
	Exec(t, pool, `INSERT INTO app.item (id, value) SELECT i, 'old' FROM generate_series(1, $1) AS i`, n)
	return &BatchBundle{Pool: pool, Batches: BatchWriterOf(t, pool, Rows), Claim: MustRaise(t, pool, ClaimOf("r", 5))}
}

// BatchWriterOf returns a writer of batches for a table.
func BatchWriterOf(t *testing.T, pool *pgxpool.Pool, table pgtable.Table) *pgbatch.BatchWriter {
	t.Helper()
	columns, err := pgtable.Inspect(t.Context(), pool, table)
	if err != nil {
		t.Fatal(err)
	}
	batches, err := pgbatch.NewBatchWriter(table, columns)
	if err != nil {
		t.Fatal(err)
	}
	return batches
}

// Changes sets a value in the rows with the given ids.
func Changes(value string, ids ...int) []pgbatch.Change {
	all := make([]pgbatch.Change, len(ids))
	for i, id := range ids {
		all[i] = pgbatch.Change{Key: pgtable.Key{id}, Set: pgtable.Set{"value": value}}
	}
	return all
}

// BatchFunc is a method of a batch that writes.
type BatchFunc func(b *pgbatch.Batch, ctx context.Context, tx pgx.Tx, c pgclaim.Claim, opts *pgbatch.BatchOptions) error

// UpsertBatch is the batch's Upsert, for a test that ignores how many rows were inserted.
//
//nolint:revive // ctx comes second, since this is a BatchFunc
func UpsertBatch(
	b *pgbatch.Batch, ctx context.Context, tx pgx.Tx, c pgclaim.Claim, opts *pgbatch.BatchOptions,
) error {
	_, err := b.Upsert(ctx, tx, c, opts)
	return err
}

// Partial are the options that write all rows that can be written.
var Partial = &pgbatch.BatchOptions{Partial: true}

// Write writes a batch in its own transaction and commits if the batch allows it. With Partial a *BatchError does not
// prevent the commit.
func (m *BatchBundle) Write(
	ctx context.Context, batch []pgbatch.Change, opts *pgbatch.BatchOptions, write BatchFunc,
) error {
	b, err := m.Batches.Batch(batch)
	if err != nil {
		return err
	}
	var reported error
	err = pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
		err := write(b, ctx, tx, m.Claim, opts)
		if opts != nil && opts.Partial && errors.As(err, new(*pgbatch.BatchError)) {
			reported = err
			return nil
		}
		return err
	})
	return errors.Join(reported, err)
}

// Overlook writes a batch and commits regardless of the batch's error.
func (m *BatchBundle) Overlook(ctx context.Context, batch []pgbatch.Change, write BatchFunc) (said, committed error) {
	b, err := m.Batches.Batch(batch)
	if err != nil {
		return err, nil
	}
	committed = pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
		said = write(b, ctx, tx, m.Claim, nil)
		return nil
	})
	return said, committed
}

// Load loads rows of id and value.
func (m *BatchBundle) Load(
	ctx context.Context, c pgclaim.Claim, source pgx.CopyFromSource, opts *pgbatch.BatchOptions,
) error {
	var reported error
	err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
		staged, err := m.Batches.Stage(ctx, tx, []string{"id", "value"}, source)
		if err != nil {
			return err
		}
		err = staged.Merge(ctx, c, opts)
		if opts != nil && opts.Partial && errors.As(err, new(*pgbatch.BatchError)) {
			reported = err
			return nil
		}
		return err
	})
	return errors.Join(reported, err)
}

// Source gives the rows with the given ids a value.
func Source(value string, ids ...int) pgx.CopyFromSource {
	return pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i], value}, nil })
}

// Count counts the rows that match a condition.
func Count(t *testing.T, pool *pgxpool.Pool, condition string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM app.item WHERE `+condition, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
