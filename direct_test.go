package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// A pool may clean its sessions between two uses, with DISCARD ALL for example. That drops the prepared statements of
// every connection, which the driver does not learn.
func TestAConnectionWithoutItsPreparedStatementsIsUsedAllTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	pool, _ := testenv.CountedPool(t, b.pool) // one connection
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func(context.Context, pgx.Tx) error { return nil }
	l := acquire(t, store, "held", nil)
	calls := map[string]func() error{
		"Do":            func() error { return store.Do(t.Context(), "r", nothing) },
		"Tx":            func() error { return store.Tx(t.Context(), nothing, l) },
		"AdvisoryTx.Do": func() error { return advisoryTx(t, pool, &b.opts).Do(t.Context(), "locked", nothing) },
		"Acquire": func() error {
			l, err := store.Acquire(t.Context(), "other", nil)
			if err != nil {
				return err
			}
			return l.Release(t.Context())
		},
	}
	for name, call := range calls {
		for range 2 { // prepared by the first
			if err := call(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			exec(t, pool, `DEALLOCATE ALL`)
		}
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fencepost uses prepared statements under its own names. Neither the program's statements on the same connection nor
// fencepost's batches use them, because nobody would prepare them again after the session has been cleaned.
func TestNobodyElseUsesThePreparedStatements(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	nothing := func(context.Context, pgx.Tx) error { return nil }
	for name, call := range map[string]func(*pgxpool.Pool, *fencepost.Store, *fencepost.Lease) error{
		"BeginTx": func(pool *pgxpool.Pool, _ *fencepost.Store, _ *fencepost.Lease) error {
			tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			if err != nil {
				return err
			}
			return tx.Rollback(t.Context())
		},
		"a batch": func(_ *pgxpool.Pool, store *fencepost.Store, l *fencepost.Lease) error {
			return store.TxWith(t.Context(), &fencepost.TxOptions{ReadOnly: true}, nothing, l)
		},
	} {
		pool, _ := testenv.CountedPool(t, b.pool) // one connection
		store, err := fencepost.New(pool, b.rdb, &b.opts)
		if err != nil {
			t.Fatal(err)
		}
		l := acquire(t, store, name, nil)
		if err := errors.Join(call(pool, store, l), store.Tx(t.Context(), nothing, l)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		exec(t, pool, `DEALLOCATE ALL`)
		_ = call(pool, store, l) // then pgx forgets what is in its own cache
		if err := call(pool, store, l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A transaction that was begun without a batch is complete.
func TestTheTransactionOfDoIsAWholeOne(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	err := b.store.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := inner.Exec(ctx, `UPDATE app.invoice SET value = 'undone' WHERE id = '1'`); err != nil {
			return err
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		objects := tx.LargeObjects()
		oid, err := objects.Create(ctx, 0)
		if err != nil {
			return err
		}
		if err := objects.Unlink(ctx, oid); err != nil {
			return err
		}
		var nested pgx.Batch
		nested.BeginTx(pgx.TxOptions{})
		if err := tx.SendBatch(ctx, &nested).Close(); err == nil {
			return errors.New("a batch began a transaction in the transaction")
		}
		var batch pgx.Batch
		batch.Queue(`UPDATE app.invoice SET value = 'done' WHERE id = '2'`)
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	var values [2]string
	err = b.pool.QueryRow(t.Context(), `SELECT max(value) FILTER (WHERE id = '1'), max(value) FILTER (WHERE id = '2')
		FROM app.invoice`).Scan(&values[0], &values[1])
	if err != nil || values != [2]string{"0", "done"} {
		t.Errorf("%v, %v", values, err)
	}
}
