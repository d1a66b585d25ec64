package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// lines are the steps of the nightly job, each a transaction of its own.
var lines = []struct{ name, count string }{
	{"open", `SELECT count(*) FROM app.invoice WHERE status = 'open'`},
	{"paid", `SELECT count(*) FROM app.invoice WHERE status = 'paid'`},
	{"charged", `SELECT coalesce(sum(cents), 0) FROM app.charge`},
}

// nightly runs in one process at a time, and does each step once per day. Its context ends if the lease is lost. The
// primary key (day, line) records what has been done, so the next run continues where this one stopped.
func (a *app) nightly(ctx context.Context, day time.Time) error {
	opts := &fencepost.AcquireOptions{NoWait: true}
	err := a.store.With(ctx, "nightly", opts, func(ctx context.Context, lease *fencepost.Lease) error {
		for _, line := range lines {
			err := a.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO app.report (day, line, value)
					VALUES ($1, $2, (`+line.count+`)) ON CONFLICT DO NOTHING`, day, line.name)
				return err
			}, lease)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, fencepost.ErrHeld) {
		return nil // another process is at it
	}
	return err
}
