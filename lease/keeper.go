package lease

import (
	"context"
	"time"
)

// The keeper: what keeps a held lease alive and ends it in time. It owns no goroutine; two timers
// per lease wake it, one for the next renewal and one that watches the deadline.

// Renew gives the lease a new TTL, counted from before the call is sent; later automatic renewals
// use it as well. One renewal is under way at a time: a second call waits for the first. ctx bounds
// the call, and so does the deadline the lease has now: an answer that comes after it is a loss.
//
// Errors: ErrInvalid for a TTL out of range or too short for RenewEvery, before anything is sent;
// ErrLost; ErrUnavailable, after which the lease is held until its old deadline.
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
		ended, err := l.beginRenewal()
		if err != nil {
			return err
		}
		if ended == nil {
			return l.renew(ctx, ttl)
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return interpret(ctx, "renew", l.resource, ctx.Err())
		}
	}
}

// renewInBackground is woken by the timer.
func (l *Lease) renewInBackground() {
	if busy, err := l.beginRenewal(); err != nil || busy != nil {
		return // over, or a renewal by hand is under way: it sets the timer when it ends
	}
	l.mu.Lock()
	ttl := l.ttl
	l.mu.Unlock()
	if err := l.renew(l.ctx, ttl); err != nil && l.Err() == nil {
		l.m.opts.Logger.Warn("lease not renewed, trying again", "resource", l.resource, "error", err)
	}
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

// renew sends one renewal and takes in its answer. Called after beginRenewal.
func (l *Lease) renew(ctx context.Context, ttl time.Duration) error {
	start := l.expectAtMost(ttl)
	answer, err := l.m.scripts.runRenew(ctx, l.resource, l.keys, l.nonce, ttl)
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
	if err != nil {
		l.lastErr = err
		l.schedule(l.retryIn())
		return err
	}
	l.start, l.ttl, l.lastErr, l.late = start, ttl, nil, false
	l.schedule(l.every)
	l.watch.Reset(ttl / 2)
	return l.evaluate()
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
		l.watch.Reset(ttl / 2)
	}
	return now
}

// schedule sets the renewal timer. Called with mu held.
func (l *Lease) schedule(in time.Duration) {
	if l.next != nil {
		l.next.Reset(in)
	}
}

// retryIn is the pause after a failed renewal: a share of the time that remains, so that tries
// come closer together as the deadline nears.
func (l *Lease) retryIn() time.Duration {
	elapsed, _ := l.m.opts.clock.now().since(l.start)
	return min(l.every, max((trusted(l.ttl)-elapsed)/4, 5*time.Millisecond))
}

// check is woken by the watch timer: at half of the TTL, to say that the renewal is late, and at
// the deadline, to end the lease.
func (l *Lease) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.evaluate() != nil {
		return
	}
	elapsed, _ := l.m.opts.clock.now().since(l.start)
	half := l.ttl / 2
	if elapsed < half {
		l.watch.Reset(half - elapsed)
		return
	}
	if !l.late {
		l.late = true
		if hook, err := l.m.opts.Hooks.RenewalLate, l.lastErr; hook != nil && l.every > 0 {
			go hook(l, elapsed, err)
		}
	}
	l.watch.Reset(max(trusted(l.ttl)-elapsed, time.Millisecond))
}
