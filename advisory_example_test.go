package fencepost_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// Without Redis: leases are PostgreSQL's advisory locks, and everything else is as with New.
func ExampleNewAdvisory() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	store, err := fencepost.NewAdvisory(s.pool, &fencepost.Options{Namespace: "billing"})
	check(err)
	lease, err := store.Acquire(ctx, "invoice:2026-11", nil)
	check(err)
	defer func() { _ = lease.Release(ctx) }()
	err = store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid' WHERE id = '2026-11'`)
		return err
	}, lease)
	fmt.Println(err)
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: paid
}

// The lease is the transaction: lock, work and commit. Its claim is in the function's context.
func ExampleNewAdvisoryTx() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	locks, err := fencepost.NewAdvisoryTx(s.pool, &fencepost.AdvisoryTxOptions{Namespace: "billing"})
	check(err)
	err = locks.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
		claim, _ := fencepost.ClaimFromContext(ctx)
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid for ' || $1 WHERE id = '2026-11'`, claim.Resource)
		return err
	})
	fmt.Println(err)
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: paid for billing:invoice:2026-11
}
