package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

// Prepare runs the migrations, which a deployment may do as well, and makes a store.
func prepare(ctx context.Context, pool *pgxpool.Pool, rdb *redis.Client) (*fencepost.Store, error) {
	column, err := migrations.TokenColumn(1000, migrations.Table{Schema: "app", Name: "invoice"})
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, &migrations.Options{Also: []*goose.Migration{column}}); err != nil {
		return nil, err
	}

	return fencepost.New(pool, rdb, &fencepost.Options{Namespace: "billing"})
}

// Open connects to the two servers.
func open(ctx context.Context) (*fencepost.Store, func(), error) {
	pool, err := pgxpool.New(ctx, os.Getenv("FENCEPOST_POSTGRES_URL"))
	if err != nil {
		return nil, nil, err
	}
	opts, err := redis.ParseURL(os.Getenv("FENCEPOST_REDIS_URL"))
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(opts)
	store, err := prepare(ctx, pool, rdb)
	return store, func() {
		_ = rdb.Close()
		pool.Close()
	}, err
}

// Do is the whole of it: lease, claim, guarded transaction, release.
func ExampleStore_Do() {
	ctx := context.Background()
	store, closeBoth, err := open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeBoth()

	err = store.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid' WHERE id = '2026-11'`)
		return err
	})
	switch {
	case err == nil: // committed
	case errors.Is(err, fencepost.ErrOutcomeUnknown):
		// the connection ended at COMMIT: look before you write again
	case errors.Is(err, fencepost.ErrStale), errors.Is(err, fencepost.ErrLost):
		// another worker has taken over: nothing was written
	}
	fmt.Println(err)
}

// A lease may be held over several transactions, and rows be read and written by name.
func ExampleTable_Update() {
	ctx := context.Background()
	store, closeBoth, err := open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeBoth()

	type Bill struct {
		ID    string
		Value string
	}
	bills, err := fencepost.NewTable[Bill](ctx, store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"},
		Resource: fencepost.PerRow("invoice:"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	lease, err := store.Acquire(ctx, "invoice:2026-11", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release(ctx) }()

	bill, err := bills.Claim(ctx, lease, fencepost.Key{"2026-11"})
	if err == nil {
		err = bills.Update(ctx, lease, fencepost.Key{"2026-11"}, fencepost.Set{"value": bill.Value + ", sent"})
	}
	fmt.Println(err)
}

// Code that has only a claim value, in another process or beside an ORM, guards its own transaction.
func ExampleLease_Claim() {
	ctx := context.Background()
	store, closeBoth, err := open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer closeBoth()

	lease, err := store.Acquire(ctx, "invoice:2026-11", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release(ctx) }()

	write := func(tx pgx.Tx, claim fence.Claim) error {
		if err := fence.Guard(ctx, tx, claim); err != nil {
			return err // *fencepost.StaleError once another worker has claimed; tx is aborted
		}
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid' WHERE id = '2026-11'`)
		return err
	}
	pool, err := pgxpool.New(ctx, os.Getenv("FENCEPOST_POSTGRES_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	fmt.Println(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return write(tx, lease.Claim()) }))
}
