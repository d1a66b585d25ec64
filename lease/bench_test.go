package lease_test

import (
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
