package fencepost

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Events without a handler allocate nothing. The control: an event with a handler does, if only for the names that it
// carries.
func TestUnsetEventsAllocateNothing(t *testing.T) { // AllocsPerRun must not be called in a parallel test
	if allocs := reportAll(&Store{}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if h := (&Store{}).hooks(); h.RenewalLate != nil {
		t.Error("package lease is given a hook that nobody asked for")
	}
	set := &Store{}
	set.opts.Events.Transacted = func(context.Context, []string, time.Duration, error) {}
	if allocs := reportAll(set); allocs == 0 {
		t.Error("an event that is set allocates nothing either: the count shows nothing")
	}
}

// reportAll returns the allocations of all events that a call of Acquire, Do, Tx or Release may report.
func reportAll(s *Store) (allocs float64) {
	l := &Lease{store: s, resource: "r"}
	ctx, about, leases := context.Background(), subject{leases: []*Lease{l}}, []*Lease{l}
	unknown := fmt.Errorf("%w", ErrOutcomeUnknown)
	run := func() error { return nil }
	return testing.AllocsPerRun(100, func() {
		s.acquired(ctx, l, time.Second)
		s.refusedAcquire(ctx, l.resource, time.Second, unknown)
		s.claimWait(ctx, l, 1, time.Second)()
		_ = s.transact(ctx, about, run)
		s.retried(ctx, about, 1, unknown)
		s.settled(ctx, leases, time.Second, unknown)
		s.outcomeUnknown(ctx, about, unknown)
		_ = l.heldFor.begin()
		l.heldFor.releasing()
		s.released(ctx, l)
	})
}
