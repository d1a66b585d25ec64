package fenceposttest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fenceposttest"
)

// payer is somebody's worker: it computes under a lease, then writes, and begins again if it was overtaken meanwhile.
type payer struct {
	store   *fencepost.Store
	compute func() // what takes long
}

func (p *payer) pay(ctx context.Context, invoice string) error {
	for {
		err := p.store.With(ctx, invoice, nil, func(ctx context.Context, l *fencepost.Lease) error {
			p.compute()
			return p.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE invoice SET paid = paid + 1`)
				return err
			}, l)
		})
		if !errors.Is(err, fencepost.ErrStale) && !errors.Is(err, fencepost.ErrLost) {
			return err
		}
	}
}

// The README shows this test.
func TestMyWorkerSurvivesATakeover(t *testing.T) {
	env := fenceposttest.New(t, nil)
	if _, err := env.Pool.Exec(t.Context(), `CREATE TABLE invoice AS SELECT 0 AS paid`); err != nil {
		t.Fatal(err)
	}
	takenOver := 0
	worker := &payer{store: env.Store, compute: func() {
		if takenOver++; takenOver <= 2 {
			env.TakeOver("invoice:7")
		}
	}}
	if err := worker.pay(t.Context(), "invoice:7"); err != nil {
		t.Fatal(err)
	}
	var paid int
	err := env.Pool.QueryRow(t.Context(), `SELECT paid FROM invoice`).Scan(&paid)
	if err != nil || paid != 1 || takenOver != 3 {
		t.Errorf("paid %d times in %d tries, %v", paid, takenOver, err)
	}
}
