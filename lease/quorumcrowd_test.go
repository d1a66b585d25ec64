package lease_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
)

// C57: a crowd is no reason to refuse a caller, on a healthy quorum and on one with a server that hangs.
func TestCase57_ACrowdIsServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		crowd int
		hung  bool
	}{{100, false}, {500, false}, {100, true}, {500, true}} {
		t.Run(fmt.Sprintf("%d, hung=%v", c.crowd, c.hung), func(t *testing.T) {
			t.Parallel()
			r := setupCircle(t, 3, lease.QuorumOptions{NodeTimeout: 10 * time.Second}) // the machine may have other work
			if c.hung {
				r.proxies[2].Hang()
				defer r.proxies[2].Resume()
			}
			for _, err := range crowd(t, r.holder, c.crowd) {
				t.Error(err)
			}
			r.proxies[2].Resume()
			eventually(t, "no lease to be left", func() bool { return leases(t, r) == 0 })
		})
	}
}

// crowd makes n callers acquire and release a lease each, at once, and returns the errors.
func crowd(t *testing.T, q *lease.Quorum, n int) (failed []error) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			l, err := q.TryAcquire(t.Context(), fmt.Sprint("name-", i), time.Minute, nil)
			if err == nil {
				err = l.Release(t.Context())
			}
			errs[i] = err
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// leases returns how many lease keys the servers carry in total.
func leases(t *testing.T, r *circle) (n int) {
	t.Helper()
	for _, rdb := range r.straight {
		keys, err := rdb.Keys(t.Context(), "*:lease").Result()
		if err != nil {
			t.Fatal(err)
		}
		n += len(keys)
	}
	return n
}

// A server that hangs gathers no more calls than came before its silence told. The test runs alone: it counts
// goroutines.
//
//nolint:paralleltest // see above
func TestCase57_AServerThatHangsGathersNoCalls(t *testing.T) {
	const timeout = 150 * time.Millisecond
	r := setupCircle(t, 3, lease.QuorumOptions{NodeTimeout: timeout})
	waves := func(n int) int {
		for range n {
			for _, err := range crowd(t, r.holder, 20) {
				if !errors.Is(err, lease.ErrUnavailable) { // the time limit is short
					t.Error(err)
				}
			}
		}
		return runtime.NumGoroutine()
	}
	r.proxies[2].Hang()
	defer r.proxies[2].Resume()
	waves(5)
	<-time.After(2 * timeout) // its silence is what counts
	first := waves(5)
	waves(50)
	// Calls on the servers that answer end; those on the server that hangs do not while this looks.
	eventually(t, fmt.Sprintf("as few goroutines as before a thousand calls more, %d and 64", first),
		func() bool { return runtime.NumGoroutine() <= first+64 })
}
