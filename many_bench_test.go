package fencepost_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

func manyNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "r" + strconv.Itoa(1_000_000+i)
	}
	return all
}

// BenchmarkTxUnderManyLeases shows what each further lease of a transaction costs: ns/lease stays the same.
func BenchmarkTxUnderManyLeases(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store, _ := benchStore(b)
			leases, err := store.AcquireAll(b.Context(), manyNames(n), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := store.Tx(b.Context(), func(context.Context, pgx.Tx) error { return nil }, leases...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/lease")
			if err := fencepost.ReleaseAll(context.Background(), leases...); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkAcquireAll acquires and releases many leases at once.
func BenchmarkAcquireAll(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store, _ := benchStore(b)
			names := manyNames(n)
			b.ReportAllocs()
			for b.Loop() {
				leases, err := store.AcquireAll(b.Context(), names, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := fencepost.ReleaseAll(b.Context(), leases...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/lease")
		})
	}
}
