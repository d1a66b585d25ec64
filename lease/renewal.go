package lease

import (
	"context"
	"time"
)

// Renew gives the lease a new TTL, counted from before the call is sent; later automatic renewals
// use it as well. One renewal is under way at a time: a second call waits for the first. ctx bounds
// the call, and so does the deadline the lease has now: an answer that comes after it is a loss.
//
// Errors: ErrInvalid for a TTL out of range or too short for RenewEvery, before anything is sent;
// ErrLost; ErrUnavailable, after which the lease is held until its deadline.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	if err := checkTTL(ttl); err != nil {
		return err
	}
	if l.every > 0 {
		if err := checkRenewal(ttl, l.every); err != nil {
			return err
		}
	}
	for {
		busy, err := l.beginRenewal()
		if err != nil {
			return err
		}
		if busy == nil {
			return l.renewNow(ctx, ttl)
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return interpret(ctx, "renew", l.resource, ctx.Err())
		}
	}
}

// Progress says that the work gets on. It matters where AcquireOptions.ProgressEvery asks for it.
func (l *Lease) Progress() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progressed = l.m.opts.clock.now().time
}

// beginRenewal claims the one place for a renewal in flight. Where it is taken, it returns the
// channel that is closed when it becomes free.
func (l *Lease) beginRenewal() (busy <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.evaluate(); err != nil {
		return nil, err
	}
	if l.renewing != nil {
		return l.renewing, nil
	}
	l.renewing = make(chan struct{})
	return nil, nil
}

// renewNow sends one renewal. Called after beginRenewal.
func (l *Lease) renewNow(ctx context.Context, ttl time.Duration) error {
	start := l.expectAtMost(ttl)
	ctx, cancel := context.WithTimeout(ctx, l.Remaining()) // nothing is sent past the deadline
	defer cancel()
	_, late, err := do(ctx, func() (struct{}, error) {
		answer, err := l.m.backend.runRenew(ctx, l.ident, ttl)
		return struct{}{}, l.renewed(start, ttl, answer, err)
	})
	if over := l.Err(); over != nil {
		return over
	}
	if late != nil {
		return interpret(ctx, "renew", l.resource, ctx.Err())
	}
	return err
}

// expectAtMost notes the time of a renewal about to be sent. Where the new TTL would end the lease
// sooner than the old one, it counts from now on: Redis may carry the renewal out and its answer
// be lost.
func (l *Lease) expectAtMost(ttl time.Duration) instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.m.opts.clock.now()
	if elapsed, _ := now.since(l.start); trusted(ttl) < trusted(l.ttl)-elapsed {
		l.start, l.ttl = now, ttl
		l.schedule()
	}
	return now
}

func (l *Lease) currentTTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// renewed takes in the answer to a renewal and frees its place.
func (l *Lease) renewed(start instant, ttl time.Duration, answer string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.renewing)
	l.renewing = nil
	if err == nil {
		err = l.settle(answer)
	} else if over := l.evaluate(); over != nil {
		err = over
	}
	if l.over != nil {
		return err
	}
	now := l.m.opts.clock.now()
	if err != nil {
		l.lastErr = err
		l.renewAt = now.time.Add(l.retryIn(now))
	} else {
		l.start, l.ttl, l.lastErr, l.late = start, ttl, nil, false
		l.renewAt = now.time.Add(l.every)
	}
	l.schedule()
	if err == nil {
		err = l.evaluate()
	}
	return err
}

// retryIn is the pause after a failed renewal: a share of the time that remains, so that tries
// come closer together as the deadline nears. Called with mu held.
func (l *Lease) retryIn(now instant) time.Duration {
	elapsed, _ := now.since(l.start)
	return min(l.every, max((trusted(l.ttl)-elapsed)/4, 5*time.Millisecond))
}

// woken is called by the keeper. It reports whether the lease is to be renewed now, and has then
// taken the place for that.
func (l *Lease) woken() (renew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.evaluate() != nil {
		return false
	}
	now := l.m.opts.clock.now()
	l.noticeLateness(now)
	if l.every > 0 && l.renewing == nil && !l.renewAt.After(now.time.Add(slack)) {
		if l.stalled(now) {
			l.renewAt = now.time.Add(l.retryIn(now)) // the work may get on yet
		} else {
			l.renewing = make(chan struct{})
			renew = true
		}
	}
	l.schedule()
	return renew
}

// stalled reports whether the work has not said in time that it gets on. Called with mu held.
func (l *Lease) stalled(now instant) bool {
	return l.progress > 0 && now.time.Sub(l.progressed) > l.progress
}

// noticeLateness tells, once, that half of the TTL has gone without a renewal. Called with mu held.
func (l *Lease) noticeLateness(now instant) {
	elapsed, _ := now.since(l.start)
	if l.late || elapsed < l.ttl/2 {
		return
	}
	l.late = true
	if hook, err := l.m.opts.Hooks.RenewalLate, l.lastErr; hook != nil && l.every > 0 {
		go hook(l, elapsed, err)
	}
}

// schedule tells the keeper when to wake the lease next: for its renewal, for lateness, or for its end,
// whichever comes first. Called with mu held.
func (l *Lease) schedule() {
	at := l.start.time.Add(trusted(l.ttl))
	if l.maxHold > 0 && l.granted.time.Add(l.maxHold).Before(at) {
		at = l.granted.time.Add(l.maxHold)
	}
	if half := l.start.time.Add(l.ttl / 2); !l.late && half.Before(at) {
		at = half
	}
	if l.every > 0 && l.renewing == nil && l.renewAt.Before(at) {
		at = l.renewAt
	}
	l.m.keeper.set(l, at)
}
