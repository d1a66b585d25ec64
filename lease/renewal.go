package lease

import (
	"cmp"
	"context"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// Renew gives the lease a new TTL, counted from before the call is sent. Later automatic renewals use it as well. One
// renewal is in flight at a time: a second call waits for the first. Both ctx and the lease's current deadline bound
// the call; a reply after the deadline is a loss.
//
// If a Renew would end the lease sooner and is not answered, the network may still deliver it later. From then on the
// lease is relied on for no longer than that TTL after each renewal, whatever TTL the renewal asks for.
//
// Errors: ErrInvalid, before anything is sent, for a TTL that is out of range or too short for RenewEvery; ErrLost;
// ErrUnavailable, after which the lease is held until its deadline.
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

// Progress reports that the work is making progress. It matters only if AcquireOptions.ProgressEvery is set. It sends
// nothing.
func (l *Lease) Progress() {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	l.progressed = now.Time
}

// beginRenewal reserves the one slot for a renewal in flight. If the slot is taken, it returns the channel that is
// closed when the slot is free.
func (l *Lease) beginRenewal() (busy <-chan struct{}, err error) {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	if err := l.evaluate(now); err != nil {
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
	start, sooner := l.expectAtMost(ttl)
	ctx, cancel := context.WithTimeout(ctx, l.Remaining()) // nothing is sent past the deadline
	defer cancel()
	_, pending, err := do(ctx, func() (struct{}, error) {
		answer, err := l.sendRenewal(ctx, ttl, sooner)
		return struct{}{}, l.renewed(start, ttl, answer, err)
	})
	if over := l.Err(); over != nil {
		return over
	}
	if pending != nil {
		return interpret(ctx, "renew", l.resource, ctx.Err())
	}
	return err
}

// expectAtMost records the time of a renewal that is about to be sent. If the new TTL would end the lease sooner than
// the old one, it counts from now on: Redis may carry the renewal out and its reply be lost.
func (l *Lease) expectAtMost(ttl time.Duration) (now clock.Instant, sooner bool) {
	now = l.now()
	l.mu.Lock()
	defer l.unlock()
	elapsed, _ := now.Since(l.start)
	if sooner = trusted(ttl) < trusted(l.ttl)-elapsed; sooner {
		l.start, l.ttl = now, ttl
		l.schedule()
	}
	return now, sooner
}

// sendRenewal lets Redis shorten the key only if the caller asked for that. Any other renewal that arrives late takes
// nothing away from what a later one promised.
func (l *Lease) sendRenewal(ctx context.Context, ttl time.Duration, sooner bool) (answer string, err error) {
	if _, confirms := l.nextTTL(); confirms { // a confirmation takes no time away
		return l.m.backend.runConfirm(ctx, l.ident, l.label, ttl, "")
	}
	if !sooner {
		return l.m.backend.runRenew(ctx, l.ident, ttl)
	}
	answer, open, err := l.m.backend.runShorten(ctx, l.ident, ttl)
	if open {
		l.mu.Lock()
		defer l.unlock()
		if l.atMost == 0 || ttl < l.atMost {
			l.atMost = ttl
		}
	}
	return answer, err
}

// nextTTL is what the next renewal asks for. confirms means that it has to confirm the lease.
func (l *Lease) nextTTL() (ttl time.Duration, confirms bool) {
	l.mu.Lock()
	defer l.unlock()
	return cmp.Or(l.unconfirmed, l.ttl), l.unconfirmed > 0
}

// renewed applies the reply to a renewal and frees its slot.
func (l *Lease) renewed(start clock.Instant, ttl time.Duration, answer string, err error) error {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	close(l.renewing)
	l.renewing = nil
	if err == nil {
		err = l.settle(now, answer)
	} else if over := l.evaluate(now); over != nil {
		err = over
	}
	if l.over != nil {
		return err
	}
	if err != nil {
		l.lastErr = err
		l.renewAt = now.Time.Add(l.retryIn(now))
	} else {
		if l.atMost > 0 {
			ttl = min(ttl, l.atMost)
		}
		l.start, l.ttl, l.lastErr, l.toldLate, l.unconfirmed = start, ttl, nil, false, 0
		// Counted from when the renewal was sent, as the TTL is: a slow round trip must not use up the time for the
		// next one.
		if l.renewAt = start.Time.Add(l.every); l.renewAt.Before(now.Time) {
			l.renewAt = now.Time
		}
	}
	l.schedule()
	if err == nil {
		err = l.evaluate(now)
	}
	return err
}

// retryIn is the pause after a failed renewal: a share of the remaining time less one round trip, so that tries come
// closer together as the deadline nears. The lower bounds keep it from hammering a server that refuses at once, even if
// its replies took long before. Called with mu held.
func (l *Lease) retryIn(now clock.Instant) time.Duration {
	elapsed, _ := now.Since(l.start)
	left := trusted(l.ttl) - elapsed
	return min(cmp.Or(l.every, l.unconfirmed), max((left-l.m.backend.roundTrip())/4, left/32, 5*time.Millisecond))
}

// woken is called by the keeper. It reports whether to renew the lease now; it has then taken the slot for the renewal.
func (l *Lease) woken() (renew bool) {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	if l.evaluate(now) != nil {
		return false
	}
	l.noticeLateness(now)
	if l.renews() && l.renewing == nil && !l.renewAt.After(now.Time.Add(slack)) {
		if l.stalled(now) {
			l.renewAt = now.Time.Add(l.retryIn(now)) // the work may still make progress
		} else {
			l.renewing = make(chan struct{})
			renew = true
		}
	}
	l.schedule()
	return renew
}

// renews reports whether the keeper renews the lease. One that was handed over has to be confirmed at least. Called
// with mu held.
func (l *Lease) renews() bool { return l.every > 0 || l.unconfirmed > 0 }

// stalled reports whether the work has not reported progress in time. Called with mu held.
func (l *Lease) stalled(now clock.Instant) bool {
	return l.progress > 0 && now.Time.Sub(l.progressed) > l.progress
}

// noticeLateness calls the hook, once, when half of the TTL has passed without a renewal. Called with mu held.
func (l *Lease) noticeLateness(now clock.Instant) {
	elapsed, _ := now.Since(l.start)
	if l.toldLate || elapsed < l.ttl/2 {
		return
	}
	l.toldLate = true
	if hook, err := l.m.opts.Hooks.RenewalLate, l.lastErr; hook != nil && l.every > 0 {
		go hook(l, elapsed, err)
	}
}

// schedule tells the keeper when to wake the lease next: for its renewal, for lateness, or for its end,
// whichever comes first. Called with mu held.
func (l *Lease) schedule() {
	at := l.start.Time.Add(trusted(l.ttl))
	if l.maxHold > 0 && l.granted.Time.Add(l.maxHold).Before(at) {
		at = l.granted.Time.Add(l.maxHold)
	}
	if half := l.start.Time.Add(l.ttl / 2); !l.toldLate && half.Before(at) {
		at = half
	}
	if l.renews() && l.renewing == nil && l.renewAt.Before(at) {
		at = l.renewAt
	}
	l.m.keeper.set(l, at)
}
