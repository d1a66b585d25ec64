package lease_test

import (
	"errors"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

func benchManager(b *testing.B) *lease.Manager {
	b.Helper()
	m, err := lease.NewManager(testenv.Redis(b), &lease.Options{Prefix: testenv.Prefix(b)})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func BenchmarkAcquireRelease(b *testing.B) {
	m := benchManager(b)
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Acquire(b.Context(), "r", time.Minute, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTryAcquireHeld(b *testing.B) {
	m := benchManager(b)
	withLease(b, m, func(*lease.Lease) {
		for b.Loop() {
			if _, err := m.TryAcquire(b.Context(), "r", time.Minute, nil); err == nil {
				b.Fatal("a held lease was granted")
			}
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	withLease(b, benchManager(b), func(l *lease.Lease) {
		for b.Loop() {
			if err := l.Renew(b.Context(), time.Minute); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkErr measures how every call under a lease begins. It sends nothing.
func BenchmarkErr(b *testing.B) {
	withLease(b, benchManager(b), func(l *lease.Lease) {
		for b.Loop() {
			if err := l.Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func withLease(b *testing.B, m *lease.Manager, fn func(*lease.Lease)) {
	b.Helper()
	l, err := m.Acquire(b.Context(), "r", time.Minute, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	fn(l)
	if err := l.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTokenParse parses the reply of a grant.
func BenchmarkTokenParse(b *testing.B) {
	for _, text := range []string{"1", token.Max.String()} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := token.Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHeld reports what holding a lease costs: bytes of this process's memory and goroutines, for few leases and
// for many. Both are the same however many are held.
func BenchmarkHeld(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				m := benchManager(b)
				lease.ReleaseAll(b.Context(), hold(b, m, 1_000)) // connections and scripts are there from now on
				bytes, goroutines := inUse()
				leases := hold(b, m, n)
				held, running := inUse()
				b.ReportMetric(float64(held-bytes)/float64(n), "B/lease")
				b.ReportMetric(float64(running-goroutines), "goroutines")
				if err := errors.Join(lease.ReleaseAll(b.Context(), leases)...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func hold(b *testing.B, m *lease.Manager, n int) []*lease.Lease {
	b.Helper()
	leases := make([]*lease.Lease, 0, n)
	for len(leases) < n {
		resources := make([]string, min(1_000, n-len(leases)))
		for i := range resources {
			resources[i] = "invoice:" + strconv.Itoa(len(leases)+i)
		}
		more, errs := m.TryAcquireAll(b.Context(), resources, time.Minute, nil)
		if err := errors.Join(errs...); err != nil {
			b.Fatal(err)
		}
		leases = append(leases, more...)
	}
	return leases
}

// inUse returns the bytes of this process's heap that are reachable, and its goroutines.
func inUse() (bytes int64, goroutines int) {
	runtime.GC()
	runtime.GC() // what a pool keeps for one collection goes as well
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), runtime.NumGoroutine()
}
