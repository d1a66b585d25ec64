package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgledger"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// On a database without fencepost every call says which command creates it.
func TestADatabaseWithoutMigrationsIsToldWhatToRun(t *testing.T) {
	t.Parallel()
	pool := testenv.PoolOn(t, testenv.EmptyDatabase(t))
	exec(t, pool, `CREATE TABLE public.item (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`)
	store, err := fencepost.New(pool, testenv.Redis(t), &fencepost.Options{Namespace: "hint"})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := fencepost.NewAdvisory(pool, &fencepost.Options{Namespace: "hint"})
	if err != nil {
		t.Fatal(err)
	}
	txLocks, err := fencepost.NewAdvisoryTx(pool, &fencepost.AdvisoryTxOptions{Namespace: "hint"})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range entryPoints(t, pool, store, locks, txLocks) {
		err := call(t.Context())
		if !errors.Is(err, fencepost.ErrUnavailable) ||
			!strings.Contains(err.Error(), "run fencepost migrate up, or migrations.Up") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func entryPoints(
	t *testing.T,
	pool *pgxpool.Pool,
	store, locks *fencepost.Store,
	txLocks *fencepost.AdvisoryTx,
) map[string]func(ctx context.Context) error {
	t.Helper()
	nothing := func(context.Context, pgx.Tx) error { return nil }
	claim := fence.Claim{Resource: "hint:item:1", Token: 1, Nonce: token.NewNonce()}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return map[string]func(ctx context.Context) error{
		"Acquire":        func(ctx context.Context) error { _, err := store.Acquire(ctx, "item:1", nil); return err },
		"Do":             func(ctx context.Context) error { return store.Do(ctx, "item:2", nothing) },
		"advisory":       func(ctx context.Context) error { _, err := locks.Acquire(ctx, "item:3", nil); return err },
		"advisory Do":    func(ctx context.Context) error { return txLocks.Do(ctx, "item:4", nothing) },
		"PurgeOnce":      func(ctx context.Context) error { _, err := store.PurgeOnce(ctx, pgledger.Window); return err },
		"fence.Verify":   func(ctx context.Context) error { _, err := fence.Verify(ctx, pool); return err },
		"fence.RaiseSQL": func(ctx context.Context) error { return fence.RaiseSQL(ctx, db, claim, nil) },
		"fence.Enter": func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return fence.Enter(ctx, tx, claim) })
		},
		"fence.Raise": func(ctx context.Context) error {
			return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return fence.Raise(ctx, c.Conn(), claim, nil) })
		},
		"fence.EnterSQL": func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			return fence.EnterSQL(ctx, tx, claim)
		},
		"NewTable": func(ctx context.Context) error {
			type item struct{ ID int64 }
			_, err := fencepost.NewTable[item](ctx, store, fencepost.TableSpec{
				Schema: "public", Name: "item", Key: []string{"id"}, Resource: fencepost.PerRow("item:"),
			})
			return err
		},
	}
}
