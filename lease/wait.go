package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// reservation is how long a lease is kept for the head of the queue after a release.
	reservation = 200 * time.Millisecond
	// lookEvery is the longest that a waiter trusts to be told: should messages be lost, it looks. It
	// makes for fewer than three commands a minute.
	lookEvery = 25 * time.Second
	// queueTTL outlives two looks of a waiter, so that a queue of the dead leaves no key behind.
	queueTTL = 3 * lookEvery
)

// Acquire waits for the lease of a resource until ctx ends. Waiters of one resource are served in the order
// in which they came, unless Options.NoQueue says otherwise. None polls: a release reserves the lease for the
// head of the queue and tells it, and the waiters watch the holder's TTL. A waiter whose process ended is passed
// over; one whose process hangs delays the next by 200 ms, and several of them in a row until the holder's TTL
// would have ended, 25 s at most. It keeps trying while Redis is unavailable.
//
// Errors are those of [Manager.TryAcquire]. When ctx ends, the error matches the cause of that and the
// last outcome: ErrHeld or ErrUnavailable.
func (m *Manager) Acquire(ctx context.Context, resource string, ttl time.Duration, opts *AcquireOptions) (*Lease, error) {
	r, err := m.request(resource, ttl, opts)
	if err != nil {
		return nil, err
	}
	if m.wakeups == nil {
		return m.poll(ctx, r)
	}
	var last error
	if !m.wakeups.listening() { // a lease that is free needs no subscription
		var l *Lease
		if l, last = m.attemptFor(ctx, r); last == nil || !worthWaiting(ctx, last) {
			return l, ended(ctx, last)
		}
	}
	return m.wait(ctx, r, last)
}

// poll asks again and again, where nobody tells.
func (m *Manager) poll(ctx context.Context, r *request) (*Lease, error) {
	me := &waiter{}
	var last error
	for {
		l, err := m.attempt(ctx, r)
		last = answered(ctx, last, err)
		if err == nil || !worthWaiting(ctx, err) {
			return l, ended(ctx, last)
		}
		if m.pause(ctx, me, m.nextLook(err, false)); ctx.Err() != nil {
			return nil, ended(ctx, last)
		}
	}
}

func worthWaiting(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, ErrBadKey) && !errors.Is(err, ErrInvalid)
}

// answered is the last outcome that says something: an attempt that the end of ctx cut off does not.
func answered(ctx context.Context, last, err error) error {
	if err != nil && last != nil && ctx.Err() != nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrBadKey) {
		return last
	}
	return err
}

// wait queues up and takes the lease when it is its turn. last is the outcome of a first attempt.
func (m *Manager) wait(ctx context.Context, r *request, last error) (*Lease, error) {
	me, ready := m.wakeups.join()
	r.waiter = me.id + m.wakeups.id
	l, behind, err := m.queueUp(ctx, r, me, ready, last)
	// An attempt that comes to its end from now on finds that nobody waits, and gives the place up itself.
	m.wakeups.part(me)
	switch {
	case err != nil:
		m.leave(ctx, r)
	case behind:
		go m.leave(ctx, r)
	}
	return l, err
}

// queueUp asks until the lease is granted or waiting is over. behind tells that attempts were left behind, which
// may have taken a place in the queue since.
func (m *Manager) queueUp(ctx context.Context, r *request, me *waiter, ready <-chan struct{}, last error) (l *Lease, behind bool, err error) {
	select {
	case <-ready:
	case <-ctx.Done():
	case <-time.After(m.opts.PollEvery): // go on without: being told may not be allowed here
	}
	for {
		told := isClosed(ready) // what is said from now on is heard
		l, err := m.attemptFor(ctx, r)
		if err == nil {
			return l, behind, nil
		}
		behind = behind || mayHaveGranted(err)
		last = answered(ctx, last, err)
		if worthWaiting(ctx, err) {
			m.pause(ctx, me, m.nextLook(err, told))
		}
		if !worthWaiting(ctx, err) {
			return nil, behind, ended(ctx, last)
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

// longestAttempt bounds one attempt of a waiting Acquire: it has time for another, with a server that has taken
// over meanwhile.
const longestAttempt = 2 * time.Second

// attemptFor is attempt within longestAttempt.
func (m *Manager) attemptFor(ctx context.Context, r *request) (*Lease, error) {
	short, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	return m.attempt(short, r)
}

// nextLook is when a waiter looks again if nobody tells it to, which takes that it could have been told since it asked.
func (m *Manager) nextLook(err error, told bool) time.Duration {
	var held *HeldError
	if !errors.As(err, &held) {
		return m.jitter()
	}
	if !told {
		return min(m.jitter(), held.TTL+time.Millisecond)
	}
	// The head watches the holder's TTL, and those behind it the ones before them: should they be no
	// more, it is the next one's turn.
	place := 0
	if line := (*inLine)(nil); errors.As(err, &line) {
		place = max(0, line.place)
	}
	return min(lookEvery, held.TTL+time.Duration(place)*reservation+time.Millisecond)
}

// jitter is a pause of half to one and a half times PollEvery.
func (m *Manager) jitter() time.Duration {
	return time.Duration(float64(m.opts.PollEvery) * (0.5 + rand.Float64()))
}

// pause waits until it is time to look: by the clock, or by what the waiter is told.
func (m *Manager) pause(ctx context.Context, me *waiter, wait time.Duration) {
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
		case in := <-me.wake:
			if in == 0 {
				return
			}
			t.Reset(in + time.Millisecond)
		case <-due:
			return
		case <-ctx.Done():
			return
		}
	}
}

// leave gives up the place in the queue, and what was kept for it. It does not keep the caller beyond the end of ctx.
func (m *Manager) leave(ctx context.Context, r *request) {
	id, waiter := r.ident, r.waiter
	m.cleanUp(ctx, nil, func(detached context.Context) { m.giveUpPlace(detached, id, waiter) })
}

func (m *Manager) giveUpPlace(ctx context.Context, id ident, waiter string) {
	if err := m.backend.runLeave(ctx, id, waiter); err != nil {
		m.opts.Logger.Warn("place in the queue not given up", "resource", id.resource, "error", err)
	}
}

// ended adds why ctx ended to the last outcome.
func ended(ctx context.Context, last error) error {
	if last == nil || ctx.Err() == nil || errors.Is(last, ctx.Err()) && errors.Is(last, context.Cause(ctx)) {
		return last
	}
	return errors.Join(last, context.Cause(ctx), ctx.Err())
}
