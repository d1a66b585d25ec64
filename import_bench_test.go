package fencepost_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
)

// importRows are rows of which each has its own resource.
func importRows(n int) pgx.CopyFromSource {
	return pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{fmt.Sprint(i + 1), "v"}, nil })
}

// BenchmarkTableImport loads rows of as many resources. Its baseline is BenchmarkImportByHand, without a fence.
func BenchmarkTableImport(b *testing.B) {
	store, _ := benchStore(b)
	table, err := fencepost.NewTable[Invoice](b.Context(), store, invoiceSpec())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := table.Import(b.Context(), loadColumns, importRows(manyRows), nil); err != nil || n != manyRows {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/manyRows, "ns/row")
}

func BenchmarkImportByHand(b *testing.B) {
	_, pool := benchStore(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := importByHand(b.Context(), pool); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/manyRows, "ns/row")
}

// importByHand copies and merges.
func importByHand(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TEMPORARY TABLE staging (id text, value text) ON COMMIT DROP`); err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"staging"}, loadColumns, importRows(manyRows)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO app.invoice AS t (id, value) SELECT id, value FROM staging
			ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value`)
		return err
	})
}
