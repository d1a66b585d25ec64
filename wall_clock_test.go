package fencepost_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/lease"
)

// A step of the wall clock ends a lease, and the next write is not sent.
func TestAStepOfTheWallClockEndsALease(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	b := setup(t, fencepost.Options{WallClock: func() time.Time {
		return time.Now().Add(time.Duration(ahead.Load()))
	}})
	l := b.acquire(t, "invoice-1", nil)
	if err := l.Err(); err != nil {
		t.Fatalf("with the clock untouched: %v", err)
	}
	ahead.Store(int64(-time.Hour))
	if err := l.Err(); err != nil {
		t.Errorf("with the clock set back: %v", err)
	}
	ahead.Store(int64(time.Hour))
	err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "late"})
	var lost *fencepost.LostError
	if !errors.As(err, &lost) || lost.Reason != lease.ReasonClock {
		t.Errorf("with the clock set forward: %v, want the clock as the reason", err)
	}
}
