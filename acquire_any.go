package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// AcquireAny acquires the lease of the first of several resources that is free, and holds only that one. With n
// resources that stand for n slots it is a semaphore, and each slot has its own fence. A resource named twice counts
// once. A resource that the caller already holds is left out.
//
// First it tries each resource once, beginning at a random one. It skips a resource whose last holder still has a
// transaction open. If none is free, AcquireAny waits for all of them at once, in the queue of each, so callers are
// served roughly in the order in which they came, and a release wakes one of them. If several become free at the same
// time, it keeps one and releases the others. It also leaves the other queues. As with Acquire, there are no queues
// over a quorum, nor between processes that use advisory locks. With AcquireOptions.NoWait it tries each resource once,
// and returns ErrHeld if none was free.
//
// Errors are those of [Store.Acquire]. The error matches both ErrHeld and ErrUnavailable if some resources were held
// and others could not be reached. It is ErrInvalid if there is no resource, and ErrHeldByCaller if the caller holds
// all of them. If waiting for one resource ends in an error (ErrBadKey, or a *FenceBusyError after
// AcquireOptions.ClaimWait), the call keeps waiting for the others. It returns that error only if none of them is
// acquired. ctx bounds the whole call except the release of leases that are not kept. After an error nothing is held.
// AcquireAny is safe for concurrent use.
func (s *Store) AcquireAny(ctx context.Context, resources []string, opts *AcquireOptions) (*Lease, error) {
	slots, err := s.slots(ctx, resources, opts)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	l, err := s.trySlots(ctx, slots, opts)
	if err != nil && !opts.noWait() && worthWaiting(ctx, err) {
		l, err = s.waitForSlots(ctx, slots, opts)
	}
	if err != nil {
		for _, slot := range slots {
			s.refusedAcquire(ctx, slot.resource, time.Since(began), cmp.Or(slot.met, err))
		}
		return nil, withEnd(ctx, err) // the last attempt at a slot may have ended before ctx did
	}
	s.acquired(ctx, l, time.Since(began))
	return l, nil
}

// slot is one of the resources, and the error of the last attempt to acquire it.
type slot struct {
	resource, full string
	met            error
}

// slots returns the resources that may be acquired, starting at a random one.
func (s *Store) slots(ctx context.Context, resources []string, opts *AcquireOptions) ([]*slot, error) {
	if len(resources) == 0 {
		return nil, invalidf("no resource to acquire")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	var slots []*slot
	var held error
	for _, resource := range resources {
		full, err := s.qualify(resource)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(slots, func(o *slot) bool { return o.resource == resource }) {
			continue
		}
		if err := s.checkHeld(ctx, resource, full); err != nil {
			held = err
			continue
		}
		slots = append(slots, &slot{resource: resource, full: full})
	}
	if len(slots) == 0 {
		return nil, held
	}
	turn := rand.IntN(len(slots))
	return append(slots[turn:], slots[:turn]...), nil
}

// busySlot is how long a try waits for guarded transactions under older tokens before it goes on to the next slot. A
// slot that is skipped is waited for with the others.
const busySlot = 100 * time.Millisecond

// trySlots tries the slots one after the other.
func (s *Store) trySlots(ctx context.Context, slots []*slot, opts *AcquireOptions) (*Lease, error) {
	var o AcquireOptions
	if opts != nil {
		o = *opts
	}
	if len(slots) > 1 && (o.ClaimWait == 0 || o.ClaimWait > busySlot) {
		o.ClaimWait = busySlot
	}
	for _, slot := range slots {
		l, err := s.obtain(ctx, slot.resource, slot.full, &o, s.locker.tryAcquire)
		if err == nil {
			return l, nil
		}
		if slot.met = err; !worthWaiting(ctx, err) && !errors.Is(err, ErrBadKey) {
			break
		}
	}
	return nil, metAt(slots)
}

// worthWaiting reports whether another attempt may have a different result.
func worthWaiting(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, ErrInvalid)
}

// won is the result of one waiter.
type won struct {
	slot  *slot
	lease *Lease
	err   error
}

// waitForSlots waits in each slot's queue, and keeps the first lease that is acquired and claimed. It returns once all
// of its waiters have returned.
func (s *Store) waitForSlots(ctx context.Context, slots []*slot, opts *AcquireOptions) (*Lease, error) {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	results := make(chan won, len(slots))
	for _, slot := range slots {
		go func() {
			l, err := s.obtain(waiting, slot.resource, slot.full, opts, s.locker.acquire)
			results <- won{slot, l, err}
		}()
	}
	var kept *Lease
	for range slots {
		switch r := <-results; {
		case r.err != nil:
			r.slot.meet(ctx, r.err)
		case kept == nil && r.lease.Err() == nil:
			kept = r.lease
			stop(errServed)
		default:
			r.slot.met = r.lease.Err()
			s.releaseSpare(ctx, r.lease)
		}
	}
	if kept == nil {
		return nil, metAt(slots)
	}
	if err := kept.Err(); err != nil { // lost while the others were returning
		return nil, err
	}
	return kept, nil
}

// meet records a waiter's error. A slot that was held, and could not be asked again because ctx had ended, is held: the
// end of ctx says nothing about Redis or PostgreSQL.
func (l *slot) meet(ctx context.Context, err error) {
	if ctx.Err() != nil && errors.Is(l.met, ErrHeld) && errors.Is(err, ErrUnavailable) {
		err = withEnd(ctx, l.met)
	}
	l.met = err
}

// errServed ends the wait for the other slots.
var errServed = errors.New("fencepost: another of the resources was acquired")

// releaseSpare releases a lease that was acquired in addition to the one that is kept. No event reports the release,
// because none reported the acquire.
func (s *Store) releaseSpare(ctx context.Context, l *Lease) {
	if err := l.grant.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		s.opts.Logger.Warn("spare lease not released", "resource", l.resource, "error", err)
	}
}

// metAt returns the errors of the slots: one error for each outcome.
func metAt(slots []*slot) error {
	var all []error
	for _, outcome := range []error{ErrInvalid, ErrHeld, ErrBadKey, ErrUnavailable, ErrTokenRegressed, ErrLost} {
		for _, slot := range slots {
			if slot.met != nil && errors.Is(slot.met, outcome) && !errors.Is(errors.Join(all...), outcome) {
				all = append(all, slot.met)
			}
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: none of %d resources", ErrUnavailable, len(slots))
	}
	return joined(all...)
}
