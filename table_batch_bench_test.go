package fencepost_test

import (
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

const manyRows = 10_000

// benchBatch gives a benchmark a table of many rows, all of one resource, and its lease.
func benchBatch(b *testing.B, fn func(table *fencepost.Table[Invoice], l *fencepost.Lease)) {
	b.Helper()
	store, pool := benchStore(b)
	_, err := pool.Exec(
		b.Context(),
		`INSERT INTO app.invoice (id) SELECT i::text FROM generate_series(4, $1::int) AS i`,
		manyRows,
	)
	if err != nil {
		b.Fatal(err)
	}
	table, err := fencepost.NewTable[Invoice](b.Context(), store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"}, Resource: fencepost.Constant("invoices"),
	})
	if err != nil {
		b.Fatal(err)
	}
	l, err := store.Acquire(b.Context(), "invoices", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	fn(table, l)
	if err := l.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func benchChanges() []fencepost.Change {
	rows := make([]fencepost.Change, manyRows)
	for i := range rows {
		rows[i] = fencepost.Change{Key: fencepost.Key{strconv.Itoa(i + 1)}, Set: fencepost.Set{"value": "v"}}
	}
	return rows
}

func BenchmarkTableUpdateBatch(b *testing.B) {
	benchBatch(b, func(table *fencepost.Table[Invoice], l *fencepost.Lease) {
		rows := benchChanges()
		for b.Loop() {
			if err := table.UpdateBatch(b.Context(), l, rows, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTableUpsertBatch(b *testing.B) {
	benchBatch(b, func(table *fencepost.Table[Invoice], l *fencepost.Lease) {
		rows := benchChanges()
		for b.Loop() {
			if err := second(table.UpsertBatch(b.Context(), l, rows, nil)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTableLoad(b *testing.B) {
	benchBatch(b, func(table *fencepost.Table[Invoice], l *fencepost.Lease) {
		for b.Loop() {
			source := pgx.CopyFromSlice(manyRows, func(i int) ([]any, error) { return []any{strconv.Itoa(i + 1), "v"}, nil })
			if _, err := table.Load(b.Context(), l, []string{"id", "value"}, source, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
