package fencepost_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func benchStore(b *testing.B) (*fencepost.Store, *pgxpool.Pool) {
	b.Helper()
	pool, rdb := testenv.Pool(b), testenv.Redis(b)
	if _, err := pool.Exec(b.Context(), createInvoices); err != nil {
		b.Fatal(err)
	}
	namespace := pool.Config().ConnConfig.Database // unique to the benchmark
	b.Cleanup(func() { dropKeys(b, rdb, "fencepost:"+namespace+":") })
	store, err := fencepost.New(pool, rdb, &fencepost.Options{Namespace: namespace})
	if err != nil {
		b.Fatal(err)
	}
	return store, pool
}

func dropKeys(b *testing.B, rdb redis.UniversalClient, prefix string) {
	b.Helper()
	ctx := context.Background() // the benchmark's own has ended
	keys := rdb.Scan(ctx, 0, prefix+"*", 10_000).Iterator()
	for keys.Next(ctx) {
		if err := rdb.Del(ctx, keys.Val()).Err(); err != nil {
			b.Error(err)
		}
	}
}

const benchWrite = `UPDATE app.invoice SET value = 'v' WHERE id = '1'`

// BenchmarkAdvisoryLock is the baseline: the lock, the write and the commit by hand.
func BenchmarkAdvisoryLock(b *testing.B) {
	_, pool := benchStore(b)
	b.ReportAllocs()
	for b.Loop() {
		err := pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
				return err
			}
			_, err := tx.Exec(b.Context(), benchWrite)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	store, _ := benchStore(b)
	b.ReportAllocs()
	for b.Loop() {
		l, err := store.Acquire(b.Context(), "r", nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	store, _ := benchStore(b)
	b.ReportAllocs()
	for b.Loop() {
		err := store.Do(b.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, benchWrite)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAdvisoryTxDo measures the same work under an advisory lock, without Redis.
func BenchmarkAdvisoryTxDo(b *testing.B) {
	_, pool := benchStore(b)
	locker, err := fencepost.NewAdvisoryTx(pool, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		err := locker.Do(b.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, benchWrite)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// benchHeld runs a benchmark under one lease.
func benchHeld(b *testing.B, fn func(*fencepost.Store, *fencepost.Lease)) {
	b.Helper()
	store, _ := benchStore(b)
	l, err := store.Acquire(b.Context(), "invoice-1", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	fn(store, l)
	if err := l.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkTx(b *testing.B) {
	benchHeld(b, func(store *fencepost.Store, l *fencepost.Lease) {
		for b.Loop() {
			err := store.Tx(b.Context(), func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, benchWrite)
				return err
			}, l)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTableUpdate(b *testing.B) {
	benchHeld(b, func(store *fencepost.Store, l *fencepost.Lease) {
		invoices, err := fencepost.NewTable[Invoice](b.Context(), store, invoiceSpec())
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := invoices.Update(b.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "v"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
