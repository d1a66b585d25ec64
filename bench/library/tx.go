package library

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

const (
	fewLeases, manyLeases = 10, 1000
	// notDearer is the rate of leases that many should leave of that of few: each may take 1.3 times as long.
	notDearer = 1 / 1.3
)

// txOfMany measures transactions without a write of their own, under few leases and under many.
func txOfMany(ctx context.Context, s Servers) (measure.Comparison, error) {
	c := measure.Comparison{
		Title: "Store.Tx without a write, under few leases and under many, one goroutine", Unit: "lease",
	}
	store, err := fencepost.New(s.Pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return c, err
	}
	for _, at := range []struct {
		leases int
		target float64
	}{{fewLeases, 0}, {manyLeases, notDearer}} {
		leases, err := acquireMany(ctx, store, at.leases)
		if err != nil {
			return c, err
		}
		c.Candidates = append(c.Candidates, measure.Candidate{
			Name: fmt.Sprintf("Store.Tx under %d leases", at.leases), Target: at.target, Each: at.leases,
			Worker: func(int) func(context.Context) error {
				return func(ctx context.Context) error {
					return store.Tx(ctx, func(context.Context, pgx.Tx) error { return nil }, leases...)
				}
			},
		})
	}
	return c, nil
}

// acquireMany acquires leases that are not given back: the keys of the run are removed after it.
func acquireMany(ctx context.Context, store *fencepost.Store, n int) ([]*fencepost.Lease, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tx-of-%d:%d", n, i)
	}
	leases, err := store.AcquireAll(ctx, names, nil)
	if err == nil && len(leases) != n {
		err = errors.New("not every lease was acquired")
	}
	return leases, err
}
