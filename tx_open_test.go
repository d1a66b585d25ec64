package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// These are the things that a function may leave open after it has written. For each of them it is not known what a nil
// error asks for: a result that was not read may be an error, and nobody has said whether to keep a savepoint that was
// not ended.
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

// I9: if a function returns nil and has left something open, the error says so, nothing is committed, and the pool
// still works.
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

// If the function returns an error, that error counts, whatever it has left open.
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

// Savepoints that have been ended, in whatever order, do no harm. Neither do those inside a savepoint that was rolled
// back.
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

// I3: a transaction that is kept beyond its function is closed, and so is a savepoint that pgx does not know to have
// ended, so that a goroutine left behind writes nothing unguarded. The control: on its connection, which is the pool's
// again, the same write would be accepted.
func TestInvariant3_ATransactionEndsWithItsFunction(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	const late = `UPDATE app.invoice SET value = 'late' WHERE id = '1'`
	var kept pgx.Tx
	keep := func(_ context.Context, tx pgx.Tx) error { kept = tx; return nil }
	for name, run := range map[string]func(context.Context, string, fencepost.TxFunc) error{
		"Do": b.store.Do, "Join": b.store.Join,
		"a savepoint": func(ctx context.Context, resource string, fn fencepost.TxFunc) error {
			return b.store.Do(ctx, resource, insideARollback(fn))
		},
	} {
		if err := run(t.Context(), "invoice-1", keep); err != nil {
			t.Fatal(err)
		}
		var batch pgx.Batch
		batch.Queue(late)
		for method, use := range map[string]func() error{
			"Exec":      func() error { _, err := kept.Exec(t.Context(), late); return err },
			"Query":     func() error { rows, _ := kept.Query(t.Context(), late); rows.Close(); return rows.Err() },
			"QueryRow":  func() error { var v string; return kept.QueryRow(t.Context(), late+` RETURNING value`).Scan(&v) },
			"SendBatch": func() error { return kept.SendBatch(t.Context(), &batch).Close() },
			"CopyFrom": func() error {
				_, err := kept.CopyFrom(t.Context(), pgx.Identifier{"app", "invoice"}, []string{"id"},
					pgx.CopyFromRows([][]any{{"late"}}))
				return err
			},
			"Prepare": func() error { _, err := kept.Prepare(t.Context(), "late", late); return err },
			"LargeObjects": func() error {
				objects := kept.LargeObjects()
				_, err := objects.Create(t.Context(), 0)
				return err
			},
			"Begin":    func() error { _, err := kept.Begin(t.Context()); return err },
			"Commit":   func() error { return ended(name, kept.Commit(t.Context())) },
			"Rollback": func() error { return ended(name, kept.Rollback(t.Context())) },
		} {
			if err := use(); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s of %s after its end: %v", method, name, err)
			}
		}
		if r := b.read(t, "1"); r.Value != "0" {
			t.Errorf("after %s the row is %+v", name, r)
		}
	}
	var conn *pgx.Conn
	if err := b.store.Do(
		t.Context(),
		"invoice-1",
		func(_ context.Context, tx pgx.Tx) error { conn = tx.Conn(); return nil },
	); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "1"); r.Value != "late" {
		t.Errorf("the control: the row is %+v", r)
	}
}

// insideARollback calls a function with a savepoint that ends with the savepoint around it.
func insideARollback(fn fencepost.TxFunc) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		outer, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		inner, err := outer.Begin(ctx)
		if err != nil {
			return err
		}
		return errors.Join(fn(ctx, inner), outer.Rollback(ctx))
	}
}

// ended checks the error of ending a transaction that is over. One that was handed out refuses that in any case.
func ended(name string, err error) error {
	if name != "a savepoint" && errors.Is(err, fencepost.ErrInvalid) {
		return pgx.ErrTxClosed
	}
	return err
}
