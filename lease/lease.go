package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/token"
)

// Lease is one grant: time-bound permission to work on a resource. It is safe for concurrent use.
//
// Invariants, while held:
//   - start was read before the call that last granted or renewed the lease was sent, or, if it was handed over, as
//     anchor.ttl says; so Redis keeps the key at least until start + ttl by a clock of our rate;
//   - a renewal that was sent earlier and arrives late takes none of that time away: see atMost;
//   - no call under the lease is sent after start + ttl - DriftMargin(ttl);
//   - once over, it stays over: state only moves from held to lost or released.
type Lease struct {
	ident
	m                *Manager
	label            string
	nonce            token.Nonce
	counterWasAbsent bool
	every            time.Duration // 0: not renewed
	maxHold          time.Duration // 0: no end
	progress         time.Duration // 0: not required
	granted          clock.Instant

	parent context.Context // without its cancellation; the lease's context inherits its values

	mu       sync.Mutex
	ctx      context.Context // made on first use
	cancel   context.CancelCauseFunc
	token    token.Token
	start    clock.Instant
	ttl      time.Duration
	over     *LostError    // nil while held
	lastErr  error         // last failed renewal since start
	toldLate bool          // RenewalLate was called since start
	atMost   time.Duration // the TTL that a renewal which may still arrive would leave; 0 if none
	renewing chan struct{} // closed when the renewal in flight has ended; nil if none
	removed  bool          // a release was answered
	tell     func()        // runs the caller's code once mu is free; see unlock
	renewAt  time.Time     // when the next renewal is due

	unconfirmed time.Duration // the TTL to ask for, of a lease that was handed over; 0 once it is confirmed

	progressed time.Time // when the work last reported progress

	// The keeper's, under its mu.
	wakeAt    time.Time
	heapIndex int // -1 if the lease is not in the heap
}

func (m *Manager) makeLease(r *request, g grant, start clock.Instant) *Lease {
	return &Lease{
		ident:            r.ident,
		m:                m,
		label:            r.label,
		nonce:            r.nonce,
		counterWasAbsent: g.absent,
		parent:           r.detached,
		every:            r.every,
		maxHold:          r.maxHold,
		progress:         r.progress,
		granted:          start,
		token:            g.token,
		start:            start,
		ttl:              r.ttl,
		renewAt:          start.Time.Add(r.every),
		progressed:       start.Time,
		heapIndex:        -1,
	}
}

// keep has the keeper watch a new lease.
func (m *Manager) keep(l *Lease) *Lease {
	l.mu.Lock()
	defer l.unlock()
	l.schedule()
	return l
}

// Resource returns the name of what the lease is for.
func (l *Lease) Resource() string { return l.resource }

// Label returns the holder's label.
func (l *Lease) Label() string { return l.label }

// Nonce returns the nonce that proves the lease is ours. It is a secret.
func (l *Lease) Nonce() token.Nonce { return l.nonce }

// Token returns the fencing token of the grant. Reissue changes it.
func (l *Lease) Token() token.Token {
	l.mu.Lock()
	defer l.unlock()
	return l.token
}

// CounterWasAbsent reports whether Redis had no counter for the resource when the lease was granted (or, with a Floor,
// no counter above it). Then the resource is new, its counter expired, or Redis lost its data.
func (l *Lease) CounterWasAbsent() bool { return l.counterWasAbsent }

// Context returns a context that ends when the lease does, at its deadline at the latest, whether or not Redis answers.
// Its cause is a *LostError, which wraps ErrReleased after a release. It carries the values of the context that
// acquired the lease but not its cancellation.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.parent)
		if l.over != nil {
			l.cancel(l.over)
		}
	}
	return l.ctx
}

// Done returns the Done channel of the lease's context.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held. Once it is over, Err returns a *LostError that says why. Err reads the
// clocks itself and sends nothing.
func (l *Lease) Err() error {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	return l.evaluate(now)
}

// Remaining returns how much longer the lease lasts without another renewal. It returns 0 once the lease is over.
func (l *Lease) Remaining() time.Duration {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	if l.evaluate(now) != nil {
		return 0
	}
	elapsed, _ := now.Since(l.start)
	left := trusted(l.ttl) - max(0, elapsed) // it may have been renewed since the clocks were read
	if l.maxHold > 0 {
		held, _ := now.Since(l.granted)
		left = min(left, l.maxHold-held)
	}
	return max(0, left)
}

// Shares returns how many servers of a [Quorum] are known to carry the lease, by what each said last, and how many
// servers there are. Renewals restore missing shares; without a majority they fail. Over a single Redis it is 1 of 1.
func (l *Lease) Shares() (have, of int) { return l.shares.count() }

// trusted is how long a lease of the given TTL may be relied on.
func trusted(ttl time.Duration) time.Duration { return ttl - DriftMargin(ttl) }

// now reads the clocks. Called without mu, because Options.WallClock is the caller's code and may call the lease.
func (l *Lease) now() clock.Instant { return l.m.opts.clock.now() }

// evaluate ends the lease if its deadline has passed, and returns why it is over, if it is. Every call begins with it:
// the timers only wake sleepers. Called with mu held.
func (l *Lease) evaluate(now clock.Instant) error {
	if l.over == nil {
		elapsed, monotonic := now.Since(l.start)
		held, _ := now.Since(l.granted)
		switch {
		case elapsed >= trusted(l.ttl):
			l.expire(now, monotonic)
		case l.maxHold > 0 && held >= l.maxHold:
			l.lose(ReasonMaxHold, nil)
			go l.m.cleanUpAfter(l) // the key has TTL left that nobody needs
		}
	}
	if l.over == nil {
		return nil
	}
	return l.over
}

func (l *Lease) expire(now clock.Instant, monotonic time.Duration) {
	switch {
	case monotonic < trusted(l.ttl):
		l.lose(ReasonClock, l.lastErr)
	case l.stalled(now):
		l.lose(ReasonStalled, nil)
	case l.lastErr != nil || l.renewing != nil: // a renewal failed or is still unanswered
		l.lose(ReasonUnreachable, l.lastErr)
	default:
		l.lose(ReasonExpired, nil)
	}
}

// lose ends the lease. Called with mu held, once.
func (l *Lease) lose(reason Reason, err error) {
	cause := &LostError{Resource: l.resource, Token: l.token, Reason: reason, Err: err}
	l.end(cause)
	l.tell = func() {
		attrs := []any{"resource", cause.Resource, "token", cause.Token, "reason", string(reason)}
		if err != nil {
			attrs = append(attrs, "error", err)
		}
		l.m.opts.Logger.Warn("lease lost", attrs...)
		if hook := l.m.opts.Hooks.Lost; hook != nil {
			go hook(l, cause)
		}
	}
}

// unlock releases mu and then runs what lose left in tell: a log handler is the caller's code and may call the lease.
// Invariant: no code of the caller's runs with mu held, and the clocks are read before mu is taken.
func (l *Lease) unlock() {
	tell := l.tell
	l.tell = nil
	l.mu.Unlock()
	if tell != nil {
		tell()
	}
}

func (l *Lease) end(why *LostError) {
	l.over = why
	l.shares.giveUp()
	l.m.keeper.drop(l)
	if l.cancel != nil {
		l.cancel(why)
	}
}

// Abandon ends a lease that is no longer of use although Redis would still keep it, for example because a fence called
// its token stale. reason and err become the cause of its end, as with any other loss. The key is removed, by nonce, in
// the background. Abandon does nothing to a lease that is already over.
func (l *Lease) Abandon(reason Reason, err error) {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	if l.evaluate(now) == nil {
		l.lose(reason, err)
		go l.m.cleanUpAfter(l)
	}
}

// Reissue replaces the token by one just above the fence's token. Use it after the fence refused the token of the
// grant: Redis had lost its counter, or the counter had run wild. The lease must still be ours in Redis; Reissue does
// not touch its TTL. ctx bounds the call.
//
// Errors: ErrLost; ErrUnavailable; ErrInvalid if no token lies above fence.
func (l *Lease) Reissue(ctx context.Context, fence token.Token) (token.Token, error) {
	if fence < 0 || fence == token.Max {
		return 0, invalidf("no token lies above a fence at %d", int64(fence))
	}
	if err := l.Err(); err != nil {
		return 0, err
	}
	tok, pending, err := do(ctx, func() (token.Token, error) { return l.reissue(ctx, fence) })
	if pending != nil {
		return 0, interpret(ctx, "reissue", l.resource, ctx.Err())
	}
	return tok, err
}

func (l *Lease) reissue(ctx context.Context, fence token.Token) (token.Token, error) {
	answer, tok, err := l.m.backend.runReissue(ctx, l.ident, fence)
	if err != nil {
		return 0, err
	}
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	if err := l.settle(now, answer); err != nil {
		return 0, err
	}
	l.token = tok
	return tok, nil
}

// settle applies what a script said about the key. Called with mu held.
func (l *Lease) settle(now clock.Instant, answer string) error {
	if err := l.evaluate(now); err != nil {
		return err
	}
	switch answer {
	case replyRenewed, replyReissued:
		return nil
	case replyGone:
		l.lose(ReasonGone, nil) // early: evaluate has checked the deadline
	case replyTaken:
		l.lose(ReasonTaken, nil)
	default:
		return unexpected("settle", l.resource, answer)
	}
	return l.over
}

// Release gives the lease back: it ends the context first and then removes the key if it is still ours. It runs on a
// context of its own, bounded by ReleaseTimeout, because a caller whose ctx was cancelled still has to release; ctx
// only supplies values. No renewal is sent after Release has returned.
//
// It returns nil if the lease was ours until now, and nil again if called again. It returns ErrLost if the lease was no
// longer ours; it then touches nothing of anybody else's. (If a reply is lost, go-redis retries, and the successor may
// hold the lease by then. That also reads as ErrLost, because it cannot be told from a loss.) It returns ErrUnavailable
// if Redis could not be reached; another call then tries again, and the TTL ends the lease at the latest.
func (l *Lease) Release(ctx context.Context) error {
	renewing, removed, lost := l.beginRelease()
	if removed {
		return nil
	}
	detached, within := detach(ctx), l.m.opts.ReleaseTimeout
	var answer string
	var pending func() error
	var err error
	if renewing == nil {
		answer, pending, err = l.m.backend.release(detached, l.ident, within)
	} else {
		answer, pending, err = l.releaseOnce(detached, renewing).await(detached, within)
	}
	if pending != nil {
		err = l.unanswered()
	} else {
		err = l.finishRelease(answer, err)
	}
	if lost != nil {
		return lost
	}
	return err
}

// releaseOnce sends the release once a renewal in flight has ended.
func (l *Lease) releaseOnce(detached context.Context, renewing <-chan struct{}) future[string] {
	return async(func() (string, error) {
		select { // one that hangs must not keep the release: it never creates a key
		case <-renewing:
		case <-time.After(l.hanging()):
		}
		return l.m.backend.runRelease(detached, l.ident)
	})
}

func (l *Lease) unanswered() error {
	return fmt.Errorf("%w: release %q: no answer within %v", ErrUnavailable, l.resource, l.m.opts.ReleaseTimeout)
}

// hangingRenewal is how long a release lets a renewal under way come to its end first.
const hangingRenewal = 200 * time.Millisecond

// hanging is how long a renewal under way may take before a release goes ahead of it. A lease that was just handed over
// waits for its confirmation, however far away the server is: a release beside it would need another connection.
func (l *Lease) hanging() time.Duration {
	l.mu.Lock()
	defer l.unlock()
	if l.unconfirmed > 0 {
		return max(hangingRenewal, l.m.backend.roundTrip())
	}
	return hangingRenewal
}

// beginRelease marks the lease as released if it was held. It returns the renewal in flight, if any,
// whether an earlier release has been answered, and how the lease was lost before, if it was.
func (l *Lease) beginRelease() (renewing <-chan struct{}, removed bool, lost error) {
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	if err := l.evaluate(now); err == nil {
		l.end(&LostError{Resource: l.resource, Token: l.token, Reason: ReasonReleased, Err: ErrReleased})
	} else if !errors.Is(err, ErrReleased) {
		return l.renewing, false, err
	}
	return l.renewing, l.removed, nil
}

func (l *Lease) finishRelease(answer string, err error) error {
	if err != nil {
		return err
	}
	now := l.now()
	l.mu.Lock()
	defer l.unlock()
	switch answer {
	case replyTaken:
		return &LostError{Resource: l.resource, Token: l.token, Reason: ReasonTaken}
	case replyGone:
		if elapsed, _ := now.Since(l.start); elapsed >= trusted(l.ttl) {
			return &LostError{Resource: l.resource, Token: l.token, Reason: ReasonExpired}
		}
	}
	l.removed = true
	return nil
}
