package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// farthest is the position in the queue from which waiters look at the same time if they are never notified.
	farthest = 5
	// lookEvery is the longest time that a waiter relies on being notified; it then looks, in case messages were lost.
	// It causes fewer than three commands a minute.
	lookEvery = 25 * time.Second
	// queueTTL outlives two looks of a waiter, so a queue of dead waiters leaves no key behind.
	queueTTL = 3 * lookEvery
)

// Acquire waits for the lease of a resource until ctx ends. Waiters for one resource are served in the order in which
// they came, unless Options.NoQueue says otherwise. They do not poll: a release hands the lease over to the head of the
// queue, which confirms it in the background, and the waiters watch the holder's TTL. Waiters whose process ended are
// passed over. Waiters that hang or were cut off delay the next one by 2 s at most, however many they are; see the
// package documentation for the exceptions. Acquire keeps trying while Redis is unavailable.
//
// Errors are those of [Manager.TryAcquire]. When ctx ends, the error matches both the cause of ctx and the last
// outcome: ErrHeld or ErrUnavailable.
func (m *Manager) Acquire(
	ctx context.Context,
	resource string,
	ttl time.Duration,
	opts *AcquireOptions,
) (*Lease, error) {
	r, err := m.request(resource, ttl, opts)
	if err != nil {
		return nil, err
	}
	if m.subscriber == nil {
		return m.poll(ctx, &r)
	}
	r.within = longestAttempt
	var last error
	if !m.subscriber.listening() { // a lease that is free needs no subscription
		var l *Lease
		if l, last = m.attempt(ctx, &r); last == nil || !worthWaiting(ctx, last) {
			return l, ended(ctx, last)
		}
	}
	waiting := r // r itself stays off the heap
	return m.wait(ctx, &waiting, last)
}

// poll asks repeatedly, for a manager that cannot be notified.
func (m *Manager) poll(ctx context.Context, r *request) (*Lease, error) {
	me := &waiter{}
	var last error
	for {
		l, err := m.attempt(ctx, r)
		last = answered(ctx, last, err)
		if err == nil || !worthWaiting(ctx, err) {
			return l, ended(ctx, last)
		}
		if m.pause(ctx, me, m.nextLook(err, r.position, false)); ctx.Err() != nil {
			return nil, ended(ctx, last)
		}
	}
}

func worthWaiting(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, ErrBadKey) && !errors.Is(err, ErrInvalid)
}

// answered returns the last meaningful outcome: an attempt that the end of ctx cut off is not.
func answered(ctx context.Context, last, err error) error {
	if err != nil && last != nil && ctx.Err() != nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrBadKey) {
		return last
	}
	return err
}

// wait joins the queue and takes the lease when its turn comes. last is the outcome of a first attempt.
func (m *Manager) wait(ctx context.Context, r *request, last error) (*Lease, error) {
	me, ready := m.subscriber.join(r.keys.lease)
	l, abandoned, err := m.queueUp(ctx, r, me, ready, last)
	held := err == nil && l.secret == me.id
	r.holds.Store(held)
	// An attempt that ends from now on finds that the waiter has gone, and gives the place up itself.
	m.subscriber.part(me)
	switch {
	case err != nil:
		m.leave(ctx, r.ident, r.waiter, false)
	case abandoned:
		go m.leave(ctx, r.ident, r.waiter, held)
	}
	return l, err
}

// queueUp asks until the lease is granted or waiting is over. abandoned reports that some attempts are still unanswered
// and may have taken a place in the queue since.
func (m *Manager) queueUp(
	ctx context.Context,
	r *request,
	me *waiter,
	ready <-chan struct{},
	last error,
) (l *Lease, abandoned bool, err error) {
	select {
	case <-ready:
	case <-ctx.Done():
	case <-time.After(m.opts.PollEvery): // go on without it: subscribing may not be allowed
	}
	m.nameRequest(r, me)
	for {
		told := isClosed(ready) // what is published from now on is received
		l, err := m.attempt(ctx, r)
		if err == nil {
			return l, abandoned, nil
		}
		abandoned = abandoned || mayHaveGranted(err)
		last = answered(ctx, last, err)
		if worthWaiting(ctx, err) {
			if g, ok := m.pause(ctx, me, m.nextLook(err, r.position, told)); ok {
				if l := m.takeOver(ctx, r, me, g); l != nil {
					return l, abandoned, nil
				}
			}
		}
		if !worthWaiting(ctx, err) {
			return nil, abandoned, ended(ctx, last)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// longestAttempt bounds one attempt of a waiting Acquire, which has time to try again with a server that has taken over
// meanwhile.
const longestAttempt = 2 * time.Second

// nextLook is how long a waiter waits before it looks again if nobody notifies it. told reports that a notification
// would have reached it since it asked.
func (m *Manager) nextLook(err error, where position, told bool) time.Duration {
	var held *HeldError
	if !errors.As(err, &held) {
		return m.jitter()
	}
	if !told {
		return min(m.jitter(), held.TTL+time.Millisecond)
	}
	// The head watches the holder's TTL, and each waiter behind it watches those before it. If they are dead, it is the
	// next one's turn.
	ahead := min(max(0, where.number), farthest)
	return min(lookEvery, held.TTL+time.Duration(ahead)*shortestReservation+time.Millisecond)
}

// jitter is a pause of half to one and a half times PollEvery.
func (m *Manager) jitter() time.Duration {
	return time.Duration(float64(m.opts.PollEvery) * (0.5 + rand.Float64()))
}

// pause waits until it is time to look: when the timer fires or when the waiter is notified. ok means that the waiter
// was granted the lease.
func (m *Manager) pause(ctx context.Context, me *waiter, wait time.Duration) (g handed, ok bool) {
	due := make(chan struct{}, 1)
	t := m.opts.clock.afterFunc(wait, func() {
		select {
		case due <- struct{}{}:
		default:
		}
	})
	defer t.Stop()
	for {
		select {
		case g := <-me.granted:
			return g, true
		case in := <-me.wake:
			if in == 0 {
				return g, false
			}
			t.Reset(in + time.Millisecond)
		case <-due:
			return g, false
		case <-ctx.Done():
			return g, false
		}
	}
}

// leave gives up the place in the queue and any reservation. It does not block the caller beyond the end of ctx.
func (m *Manager) leave(ctx context.Context, id ident, waiter string, held bool) {
	m.cleanUp(ctx, nil, func(detached context.Context) { m.giveUpPlace(detached, id, waiter, held) })
}

func (m *Manager) giveUpPlace(ctx context.Context, id ident, waiter string, held bool) {
	if err := m.backend.runLeave(ctx, id, waiter, held); err != nil {
		m.opts.Logger.Warn("place in the queue not given up", "resource", id.resource, "error", err)
	}
}

// ended joins the reason why ctx ended to the last outcome.
func ended(ctx context.Context, last error) error {
	if last == nil || ctx.Err() == nil {
		return last
	}
	for _, why := range []error{context.Cause(ctx), ctx.Err()} {
		if !errors.Is(last, why) { // the two are usually the same
			last = fmt.Errorf("%w: %w", last, why)
		}
	}
	return last
}
