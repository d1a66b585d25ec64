package fencepost_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/fencepost-pg/fencepost"
)

// benchTable runs a benchmark on the table of invoices, under one lease for all of them.
func benchTable(b *testing.B, fn func(invoices *fencepost.Table[Invoice], l *fencepost.Lease)) {
	b.Helper()
	store, _ := benchStore(b)
	spec := invoiceSpec()
	spec.Resource = fencepost.Constant("invoices")
	invoices, err := fencepost.NewTable[Invoice](b.Context(), store, spec)
	if err != nil {
		b.Fatal(err)
	}
	l, err := store.Acquire(b.Context(), "invoices", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	fn(invoices, l)
	if err := l.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkTableInsert(b *testing.B) {
	benchTable(b, func(invoices *fencepost.Table[Invoice], l *fencepost.Lease) {
		for n := 0; b.Loop(); n++ {
			if err := invoices.Insert(
				b.Context(),
				l,
				fencepost.Key{"new-" + strconv.Itoa(n)},
				fencepost.Set{"value": "v"},
			); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTableUpsert(b *testing.B) {
	benchTable(b, func(invoices *fencepost.Table[Invoice], l *fencepost.Lease) {
		for b.Loop() {
			if err := second(invoices.Upsert(b.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "v"})); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTableDelete(b *testing.B) {
	benchTable(b, func(invoices *fencepost.Table[Invoice], l *fencepost.Lease) {
		for b.Loop() {
			b.StopTimer()
			if err := second(invoices.Upsert(b.Context(), l, fencepost.Key{"1"}, nil)); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if err := invoices.Delete(b.Context(), l, fencepost.Key{"1"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTableModify(b *testing.B) {
	benchTable(b, func(invoices *fencepost.Table[Invoice], l *fencepost.Lease) {
		for b.Loop() {
			if err := invoices.Modify(b.Context(), l, fencepost.Key{"1"}, func(row *Invoice) error {
				row.Value = strconv.Itoa(len(row.Value) + 1)
				return nil
			}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkTableResource measures the work for a key before anything is sent.
func BenchmarkTableResource(b *testing.B) {
	benchTable(b, func(invoices *fencepost.Table[Invoice], _ *fencepost.Lease) {
		key := fencepost.Key{"2026-11"}
		for b.Loop() {
			if _, err := invoices.Resource(key); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const benchRows = 10_000

// BenchmarkUpdateByKeyBeside is Table.Update under the guard beside a plain UPDATE by primary key, 8 goroutines each:
// under a lease of each goroutine's own, and under one that all of them share.
func BenchmarkUpdateByKeyBeside(b *testing.B) {
	store, pool := benchStore(b)
	if _, err := pool.Exec(b.Context(), `CREATE TABLE app.line (
			tenant bigint, id bigint, value text NOT NULL DEFAULT '', last_fencing_token bigint NOT NULL DEFAULT 0,
			PRIMARY KEY (tenant, id)) WITH (fillfactor = 50);
		INSERT INTO app.line (tenant, id) SELECT n % 8, n FROM generate_series(1, 10000) AS n`); err != nil {
		b.Fatal(err)
	}
	type line struct{ Value string }
	lines := func(rule fencepost.ResourceRule) *fencepost.Table[line] {
		table, err := fencepost.NewTable[line](b.Context(), store, fencepost.TableSpec{
			Schema: "app", Name: "line", Key: []string{"tenant", "id"}, Resource: rule,
		})
		if err != nil {
			b.Fatal(err)
		}
		return table
	}
	own, shared := lines(fencepost.PerGroup("tenant:", "tenant")), lines(fencepost.Constant("lines"))
	var leases [8]*fencepost.Lease
	for i := range leases {
		l, err := store.Acquire(b.Context(), fmt.Sprintf("tenant:%d", i), nil)
		if err != nil {
			b.Fatal(err)
		}
		leases[i] = l
		defer func() { _ = l.Release(b.Context()) }()
	}
	all, err := store.Acquire(b.Context(), "lines", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = all.Release(b.Context()) }()
	for name, write := range map[string]func(tenant, id int) error{
		"plain": func(tenant, id int) error {
			_, err := pool.Exec(b.Context(), `UPDATE app.line SET value = $1 WHERE tenant = $2 AND id = $3`, "v", tenant, id)
			return err
		},
		"own lease": func(tenant, id int) error {
			return own.Update(b.Context(), leases[tenant], fencepost.Key{tenant, id}, fencepost.Set{"value": "v"})
		},
		"shared lease": func(tenant, id int) error {
			return shared.Update(b.Context(), all, fencepost.Key{tenant, id}, fencepost.Set{"value": "v"})
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(4) // times two cores
			var next atomic.Int64
			b.RunParallel(func(p *testing.PB) {
				tenant := int(next.Add(1)) % 8
				for p.Next() {
					id := 8*rand.IntN(benchRows/8) + tenant
					if id == 0 {
						id = 8
					}
					if err := write(tenant, id); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
