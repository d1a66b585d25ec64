package fencepost_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
)

// caller makes calls of every kind under a lease of invoice-1. The lease was acquired on another store over the same
// servers.
type caller struct {
	pool  *pgxpool.Pool
	store *fencepost.Store
	table *fencepost.Table[Invoice]
	lease *fencepost.Lease
	token fencepost.Token // of the last bare write
	key   int             // of the last Once
}

// newCaller makes a table through a pool that may write.
func newCaller(t *testing.T, b *bundle, pool *pgxpool.Pool) *caller {
	t.Helper()
	s, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{pool: pool, store: s, table: table(t, s), lease: acquire(t, s, "invoice-1", nil), token: 1000}
}

// writes are the calls that write, by name.
func (c *caller) writes(ctx context.Context, t *testing.T) map[string]func() error {
	t.Helper()
	key, set := fencepost.Key{"1"}, fencepost.Set{"value": "x"}
	return map[string]func() error{
		"claim of the row": func() error { return second(c.table.Stamp(ctx, c.lease, key)) },
		"update":           func() error { return c.table.Update(ctx, c.lease, key, set) },
		"upsert":           func() error { return second(c.table.Upsert(ctx, c.lease, key, set)) },
		"modify": func() error {
			return c.table.Modify(ctx, c.lease, key, func(row *Invoice) error { row.Value += "x"; return nil })
		},
		"delete, insert": func() error {
			if err := c.table.Delete(ctx, c.lease, key); err != nil {
				return err
			}
			return c.table.Insert(ctx, c.lease, key, set)
		},
		"batch": func() error {
			return c.table.UpdateBatch(ctx, c.lease, []fencepost.Change{{Key: key, Set: set}}, nil)
		},
		"load": func() error {
			return second(c.table.Load(ctx, c.lease, []string{"id", "value"}, pgx.CopyFromRows([][]any{{"1", "x"}}), nil))
		},
		"Tx": func() error { return c.store.Tx(ctx, setValue("x"), c.lease) },
		"Do": func() error { return c.store.Do(ctx, "invoice-2", setValue("x")) },
		"acquire": func() error {
			l, err := c.store.Acquire(ctx, "invoice-3", nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		},
		"once": func() error {
			c.key++
			_, err := fencepost.Once(
				ctx,
				c.lease,
				fmt.Sprint(c.key),
				nil,
				func(context.Context, pgx.Tx) (int, error) { return 1, nil },
			)
			return err
		},
		"bare": func() error {
			c.token++
			return fence.Update(
				ctx,
				c.pool,
				fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}},
				c.token,
				fence.Key{"2"},
				fence.Set{"value": "x"},
			)
		},
	}
}

// inDatabase replaces %d by the name of a pool's database.
func inDatabase(pool *pgxpool.Pool, sql string) string {
	return strings.ReplaceAll(sql, "%d", pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize())
}
