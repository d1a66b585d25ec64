package advisory

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/internal/turns"
	"github.com/fencepost-pg/fencepost/token"
)

// Lease is permission to work on a resource for as long as a PostgreSQL session lasts. It is safe for concurrent use.
//
// Invariant: once over, it stays over.
type Lease struct {
	session  *session
	resource string
	label    string
	nonce    token.Nonce
	key      int64
	turn     *turns.Turn
	claimed  atomic.Int64 // the token

	ctx    context.Context
	cancel context.CancelCauseFunc

	// Under the session's mu.
	over    *LostError // nil while held
	release *call      // the unlock, once requested
}

// Resource returns the name of what the lease is for, without the namespace.
func (l *Lease) Resource() string { return l.resource }

// Label returns the holder's label.
func (l *Lease) Label() string { return l.label }

// Nonce returns the random bits of this grant, for the claim of its token. It is a secret.
func (l *Lease) Nonce() token.Nonce { return l.nonce }

// Token returns the token that [Lease.Claimed] set, or 0 before that. An advisory lock has no number, so there is no
// token until the fence gives one.
func (l *Lease) Token() token.Token { return token.Token(l.claimed.Load()) }

// Claimed sets the token that was claimed for the lease. Token and later errors report it.
func (l *Lease) Claimed(t token.Token) { l.claimed.Store(int64(t)) }

// Context returns a context that ends when the lease does. Its cause is a *LostError, which wraps ErrReleased after a
// release. It carries the values of the context that acquired the lease but not its cancellation.
func (l *Lease) Context() context.Context { return l.ctx }

// Done returns the Done channel of the lease's context.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns nil while the lease is held, as far as this process knows. Once it is over, Err returns a *LostError that
// says why. Err reads the clocks itself and sends nothing. The session may have ended without our knowledge.
func (l *Lease) Err() error {
	now := l.session.locker.now()
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.err(now)
}

// err is Err with clocks that have been read already. Called with the session's mu held.
func (l *Lease) err(now clock.Instant) error {
	if l.over == nil {
		l.session.evaluate(now)
	}
	if l.over == nil {
		return nil
	}
	return l.over
}

// Remaining returns how much longer the lease may be relied on if PostgreSQL does not answer again. It returns 0 once
// the lease is over.
func (l *Lease) Remaining() time.Duration {
	now := l.session.locker.now()
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.err(now) != nil {
		return 0
	}
	return l.session.remaining(now)
}

// Release gives the lease back: it ends the context first, then unlocks and notifies the waiters. It runs on a context
// of its own, bounded by the time PostgreSQL may take to answer, because a caller whose ctx was cancelled still has to
// release.
//
// It returns nil if the lease was held until now, and nil again if called again. It returns ErrLost if the lease was
// not held. It returns ErrUnavailable if PostgreSQL did not confirm that it held and released the lock. The session has
// then been closed, with all its leases, because a lock of unknown state must not stay on it.
func (l *Lease) Release(context.Context) error {
	unlock, err := l.beginRelease()
	if err != nil {
		return err
	}
	patience := time.NewTimer(releaseWithin)
	defer patience.Stop()
	select {
	case <-unlock.done:
	case <-patience.C:
		l.session.fail(&doubt{ReasonUnreachable, errors.New("a lock was not given back in time")})
		<-unlock.done
	}
	if unlock.err != nil {
		return unavailable(context.Background(), "release", l.resource, unlock.err)
	}
	return nil
}

// releaseWithin bounds a release that waits behind the session's other statements.
const releaseWithin = 5 * time.Second

// beginRelease requests the unlock, once.
func (l *Lease) beginRelease() (*call, error) {
	s := l.session
	now := s.locker.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.err(now); err == nil {
		l.end(&LostError{Resource: l.resource, Token: l.Token(), Reason: ReasonReleased, Err: ErrReleased})
		l.release = s.unlock(l.key, l.turn)
	} else if l.release == nil {
		return nil, err
	}
	return l.release, nil
}

// Abandon ends a lease that is no longer of use although the session still has its lock, for example because a fence
// called its token stale. reason and err become the cause of its end, as with any other loss. The lock is released in
// the background. Abandon does nothing to a lease that is already over.
func (l *Lease) Abandon(reason token.Reason, err error) {
	s := l.session
	now := s.locker.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.err(now) == nil {
		l.lose(&doubt{reason, err})
		s.unlock(l.key, l.turn)
	}
}

// end marks the lease as over. Called with the session's mu held, once.
func (l *Lease) end(why *LostError) {
	l.over = why
	delete(l.session.leases, l)
	l.cancel(why)
}

// loseWithSession ends the lease with its session. Called with the session's mu held.
func (l *Lease) loseWithSession(why *doubt) {
	l.lose(why)
	l.turn.Done()
}

// lose ends the lease other than by release. Called with the session's mu held.
func (l *Lease) lose(why *doubt) {
	l.end(&LostError{Resource: l.resource, Token: l.Token(), Reason: why.reason, Err: why.err})
	opts, cause := &l.session.locker.opts, l.over
	go func() { // the log handler and the hook are the caller's code, which may call the lease
		opts.Logger.Warn(
			"lease lost",
			"resource",
			l.resource,
			"token",
			cause.Token,
			"reason",
			string(cause.Reason),
			"error",
			cause.Err,
		)
		if opts.Lost != nil {
			opts.Lost(l, cause)
		}
	}()
}
