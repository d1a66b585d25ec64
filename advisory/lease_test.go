package advisory_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestALeaseExcludesOthersUntilItIsReleased(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	one, two := locker(t, pool, &advisory.Options{Label: "worker 7"}), locker(t, pool, nil)
	l := acquire(t, one, "r")
	for _, other := range []*advisory.Locker{one, two} {
		_, err := other.TryAcquire(t.Context(), "r", nil)
		var held *advisory.HeldError
		if !errors.As(err, &held) || held.Label != "worker 7" || held.Resource != "r" {
			t.Errorf("got %v", err)
		}
	}
	if n := locks(t, pool); n != 1 {
		t.Errorf("%d locks", n)
	}
	if l.Err() != nil || l.Remaining() <= 0 || l.Context().Err() != nil {
		t.Errorf("%v, %v left", l.Err(), l.Remaining())
	}
	for range 2 {
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	wantErr(t, l.Err(), advisory.ErrLost, advisory.ErrReleased)
	wantErr(t, context.Cause(l.Context()), advisory.ErrLost, advisory.ErrReleased)
	if n := locks(t, pool); n != 0 {
		t.Errorf("%d locks", n)
	}
	if err := acquire(t, two, "r").Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Waiters in several processes, several in each: one at a time holds the lease, and all get it.
func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		l := locker(t, pool, nil)
		for range 5 {
			wg.Go(func() {
				for range 10 {
					lease, err := l.Acquire(t.Context(), "r", nil)
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d holders", n)
					}
					inside.Add(-1)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	began := time.Now()
	wg.Wait()
	t.Logf("200 hand-offs in %v", time.Since(began))
	if n := locks(t, pool); n != 0 {
		t.Errorf("%d locks", n)
	}
}
