package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// Lease is one grant: time-bound permission to work on a resource. It is safe for concurrent use.
//
// Invariants, while held:
//   - start was read before the call that last granted or renewed the lease was sent, so Redis
//     keeps the key at least until start + ttl by a clock of our rate;
//   - no call under the lease is sent after start + ttl - DriftMargin(ttl);
//   - once over, it stays over: state only moves from held to lost or released.
type Lease struct {
	ident
	m        *Manager
	label    string
	nonce    token.Nonce
	anew     bool
	every    time.Duration // 0: not renewed
	maxHold  time.Duration // 0: no end
	progress time.Duration // 0: not asked for
	granted  instant

	parent context.Context // without its end: the lease's context begins with its values

	mu       sync.Mutex
	ctx      context.Context // made when somebody asks for it
	cancel   context.CancelCauseFunc
	token    token.Token
	start    instant
	ttl      time.Duration
	over     *LostError    // nil while held
	lastErr  error         // last failed renewal since start
	late     bool          // RenewalLate was called since start
	renewing chan struct{} // closed when the renewal in flight has ended; nil without one
	removed  bool          // a release was answered
	renewAt  time.Time     // when the next renewal is due

	progressed time.Time // when the work last said that it gets on

	// The keeper's, under its mu.
	wakeAt    time.Time
	heapIndex int // -1 where the lease is not in the heap
}

func (m *Manager) newLease(ctx context.Context, r *request, g grant, start instant) *Lease {
	l := &Lease{
		ident: r.ident, m: m, label: r.label, nonce: r.nonce,
		anew: g.anew, parent: context.WithoutCancel(ctx), every: r.every, maxHold: r.maxHold, progress: r.progress, granted: start,
		token: g.token, start: start, ttl: r.ttl,
		renewAt: start.time.Add(r.every), progressed: start.time, heapIndex: -1,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.schedule()
	return l
}

// Resource returns the name of what the lease is for.
func (l *Lease) Resource() string { return l.resource }

// Label returns the holder's label.
func (l *Lease) Label() string { return l.label }

// Nonce returns what proves that the lease is ours. It is a secret.
func (l *Lease) Nonce() token.Nonce { return l.nonce }

// Token returns the fencing token of the grant. Reissue changes it.
func (l *Lease) Token() token.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// CounterWasAbsent reports whether Redis had no counter for the resource when the lease was
// granted (or, with a Floor, none above it): it is new, its counter expired, or Redis lost its data.
func (l *Lease) CounterWasAbsent() bool { return l.anew }

// Context returns a context that ends when the lease does, by its deadline at the latest, whether
// or not Redis answers. Its cause is a *LostError, with ErrReleased behind it after a release. It carries the
// values of the context that acquired the lease, and not its end.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// Err returns nil while the lease is held and otherwise a *LostError that says why it is not. It
// looks at the clocks itself and sends nothing.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.evaluate()
}

// Remaining returns how long the lease lasts yet without another renewal: 0 when it is over.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.evaluate() != nil {
		return 0
	}
	now := l.m.opts.clock.now()
	elapsed, _ := now.since(l.start)
	left := trusted(l.ttl) - elapsed
	if l.maxHold > 0 {
		held, _ := now.since(l.granted)
		left = min(left, l.maxHold-held)
	}
	return max(0, left)
}

// trusted is how long a lease of the given TTL may be relied on.
func trusted(ttl time.Duration) time.Duration { return ttl - DriftMargin(ttl) }

// evaluate ends the lease if its deadline has passed, and returns why it is over, if it is. Every
// call begins with it: timers only wake sleepers. Called with mu held.
func (l *Lease) evaluate() error {
	if l.over == nil {
		now := l.m.opts.clock.now()
		elapsed, monotonic := now.since(l.start)
		held, _ := now.since(l.granted)
		switch {
		case elapsed >= trusted(l.ttl):
			l.expire(now, monotonic)
		case l.maxHold > 0 && held >= l.maxHold:
			l.lose(ReasonMaxHold, nil)
			go l.m.cleanUpAfter(l) // the key has time left that nobody needs
		}
	}
	if l.over == nil {
		return nil
	}
	return l.over
}

func (l *Lease) expire(now instant, monotonic time.Duration) {
	switch {
	case monotonic < trusted(l.ttl):
		l.lose(ReasonClock, l.lastErr)
	case l.stalled(now):
		l.lose(ReasonStalled, nil)
	case l.lastErr != nil || l.renewing != nil: // a renewal failed, or has had no answer yet
		l.lose(ReasonUnreachable, l.lastErr)
	default:
		l.lose(ReasonExpired, nil)
	}
}

// lose ends the lease. Called with mu held, once.
func (l *Lease) lose(reason Reason, err error) {
	l.end(&LostError{Resource: l.resource, Token: l.token, Reason: reason, Err: err})
	l.m.opts.Logger.Warn("lease lost", "resource", l.resource, "token", l.token, "reason", string(reason), "error", err)
	if hook, cause := l.m.opts.Hooks.Lost, l.over; hook != nil {
		go hook(l, cause)
	}
}

func (l *Lease) end(why *LostError) {
	l.over = why
	l.m.keeper.drop(l)
	if l.cancel != nil {
		l.cancel(why)
	}
}

// Reissue replaces the token by one just above what the fence carries, after the fence refused the
// token of the grant: Redis had lost its counter, or it had run wild. The lease must still be ours
// in Redis; its TTL is not touched. ctx bounds the call.
//
// Errors: ErrLost, ErrUnavailable, ErrInvalid for a fence that leaves no token above it.
func (l *Lease) Reissue(ctx context.Context, fence token.Token) (token.Token, error) {
	if fence < 0 || fence == token.Max {
		return 0, invalidf("no token lies above a fence at %d", int64(fence))
	}
	if err := l.Err(); err != nil {
		return 0, err
	}
	tok, late, err := do(ctx, func() (token.Token, error) { return l.reissue(ctx, fence) })
	if late != nil {
		return 0, interpret(ctx, "reissue", l.resource, ctx.Err())
	}
	return tok, err
}

func (l *Lease) reissue(ctx context.Context, fence token.Token) (token.Token, error) {
	answer, tok, err := l.m.backend.runReissue(ctx, l.ident, fence)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.settle(answer); err != nil {
		return 0, err
	}
	l.token = tok
	return tok, nil
}

// settle takes in what a script said about the key. Called with mu held.
func (l *Lease) settle(answer string) error {
	if err := l.evaluate(); err != nil {
		return err
	}
	switch answer {
	case replyRenewed, replyReissued:
		return nil
	case replyGone:
		l.lose(ReasonExpired, nil)
	case replyTaken:
		l.lose(ReasonTaken, nil)
	default:
		return unexpected("settle", l.resource, answer)
	}
	return l.over
}

// Release gives the lease back: the context ends first, then the key is removed if it is still
// ours. It runs on a context of its own, bounded by ReleaseTimeout, since a caller whose ctx was
// cancelled still has to release; ctx gives it its values. No renewal is sent after it returned.
//
// It returns nil when the lease was ours until now, and again when it is called again; ErrLost when
// it was not, in which case nothing of anybody else's is touched. (Where a reply was lost, go-redis asks again, and
// the successor may have the lease by then: that reads as ErrLost too, since it cannot be told from a loss.) ErrUnavailable when Redis could
// not be told, in which case another call tries again and the TTL ends the lease at the latest.
func (l *Lease) Release(ctx context.Context) error {
	renewing, removed, lost := l.beginRelease()
	if removed {
		return nil
	}
	detached := context.WithoutCancel(ctx)
	timeout := time.NewTimer(l.m.opts.ReleaseTimeout)
	defer timeout.Stop()
	var answer future[string]
	if renewing == nil {
		answer = l.m.backend.sendRelease(detached, l.ident)
	} else {
		answer = async(func() (string, error) {
			select { // one that hangs must not keep the release: it never creates a key
			case <-renewing:
			case <-time.After(hangingRenewal):
			}
			return l.m.backend.runRelease(detached, l.ident)
		})
	}
	var err error
	select {
	case <-answer.done:
		err = l.finishRelease(answer.value())
	case <-timeout.C:
		err = fmt.Errorf("%w: release %q: no answer within %v", ErrUnavailable, l.resource, l.m.opts.ReleaseTimeout)
	}
	if lost != nil {
		return lost
	}
	return err
}

// hangingRenewal is how long a release lets a renewal under way come to its end first.
const hangingRenewal = 200 * time.Millisecond

// beginRelease marks the lease as released if it was held. It returns the renewal in flight, if any,
// whether an earlier release has been answered, and how the lease was lost before, if it was.
func (l *Lease) beginRelease() (renewing <-chan struct{}, removed bool, lost error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.evaluate(); err == nil {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	switch answer {
	case replyTaken:
		return &LostError{Resource: l.resource, Token: l.token, Reason: ReasonTaken}
	case replyGone:
		if elapsed, _ := l.m.opts.clock.now().since(l.start); elapsed >= trusted(l.ttl) {
			return &LostError{Resource: l.resource, Token: l.token, Reason: ReasonExpired}
		}
	}
	l.removed = true
	return nil
}
