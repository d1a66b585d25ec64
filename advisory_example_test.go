package fencepost_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
)

// Without Redis: leases are PostgreSQL's advisory locks, and everything else is as with New.
func ExampleNewAdvisory() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("FENCEPOST_POSTGRES_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := fencepost.NewAdvisory(pool, &fencepost.Options{Namespace: "billing"})
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
	err = store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid' WHERE id = '2026-11'`)
		return err
	}, lease)
	fmt.Println(err)
}

// The lease is the transaction: lock, work and commit. Its claim is in the function's context.
func ExampleNewAdvisoryTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("FENCEPOST_POSTGRES_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := fencepost.NewAdvisoryTx(pool, &fencepost.Options{Namespace: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = store.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
		lease, _ := fencepost.FromContext(ctx)
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '2026-11'`, "paid under token "+lease.Token().String())
		return err
	})
	fmt.Println(err)
}
