package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// What a function may leave open, after it has written. In each, what its nil asks for is not known: a result that was
// not read may be an error, and of a savepoint that was not ended nobody has said whether it is to be kept.
var leftOpen = map[string]fencepost.TxFunc{
	"rows": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Query(ctx, `SELECT generate_series(1, 3)`)
		return err
	},
	"rows read in part": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT 1 / (3 - i) FROM generate_series(1, 3) AS i`)
		rows.Next()
		return err
	},
	"one row": func(ctx context.Context, tx pgx.Tx) error {
		_ = tx.QueryRow(ctx, `SELECT 1`)
		return nil
	},
	"batch": func(ctx context.Context, tx pgx.Tx) error {
		var b pgx.Batch
		b.Queue(`SELECT 1`)
		b.Queue(`SELECT 2`)
		_, err := tx.SendBatch(ctx, &b).Exec()
		return err
	},
	"simple query": func(ctx context.Context, tx pgx.Tx) error {
		tx.Conn().PgConn().Exec(ctx, `SELECT 1; SELECT 2`)
		return nil
	},
	"pipeline": func(ctx context.Context, tx pgx.Tx) error {
		tx.Conn().PgConn().StartPipeline(ctx)
		return nil
	},
	"savepoint": func(ctx context.Context, tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		return errors.Join(err, setValue("inner")(ctx, inner))
	},
	"savepoint in a savepoint": func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			return errors.Join(err, setValue("inner")(ctx, inner))
		})
	},
	"savepoint whose rollback was not sent": func(ctx context.Context, tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		if err := errors.Join(err, setValue("inner")(ctx, inner)); err != nil {
			return err
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = inner.Rollback(ended)
		return nil
	},
}

// I9: a function that returns nil and has left something open is told so: nothing is committed, and the pool serves on.
func TestInvariant9_WhatAFunctionLeavesOpenIsInvalid(t *testing.T) {
	t.Parallel()
	for name, leave := range leftOpen {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fencepost.Options{})
			l := b.acquire(t, "invoice-1", nil)
			err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(setValue("dropped")(ctx, tx), leave(ctx, tx))
			}, l)
			wantErr(t, err, fencepost.ErrInvalid)
			if errors.Is(err, fencepost.ErrUnavailable) || errors.Is(err, fencepost.ErrOutcomeUnknown) {
				t.Errorf("the caller's own mistake is told as the server's: %v", err)
			}
			if r := b.read(t, "1"); r.Value != "0" {
				t.Errorf("the row is %+v", r)
			}
			if err := b.store.Tx(t.Context(), setValue("kept"), l); err != nil {
				t.Errorf("the next transaction: %v", err)
			}
			if n := b.pool.Stat().AcquiredConns(); n != 0 {
				t.Errorf("%d connections were not given back", n)
			}
		})
	}
}

// The function's own error is the one that counts, whatever it has left open besides.
func TestAnErrorWithSomethingLeftOpenIsTheFunctionsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	why := errors.New("the work failed")
	for name, leave := range leftOpen {
		err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(setValue("dropped")(ctx, tx), leave(ctx, tx), why)
		}, l)
		if !errors.Is(err, why) || errors.Is(err, fencepost.ErrInvalid) || errors.Is(err, fencepost.ErrUnavailable) {
			t.Errorf("%s: got error %v, want the function's own", name, err)
		}
	}
	if r := b.read(t, "1"); r.Value != "0" {
		t.Errorf("the row is %+v", r)
	}
}

// Savepoints that have been ended, in whatever order, are no hindrance; nor are those within one that was rolled back.
func TestSavepointsThatWereEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		outer, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		inner, err := outer.Begin(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(setValue("dropped")(ctx, inner), outer.Rollback(ctx)); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return setValue("kept")(ctx, tx) })
	}, l)
	if r := b.read(t, "1"); err != nil || r.Value != "kept" {
		t.Errorf("the row is %+v: %v", r, err)
	}
}
