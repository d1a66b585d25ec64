package advisory

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// Lease is permission to work on a resource for as long as a session of PostgreSQL lasts. It is safe for concurrent use.
//
// Invariant: once over, it stays over.
type Lease struct {
	session  *session
	resource string
	label    string
	nonce    token.Nonce
	key      int64
	turn     *Turn
	claimed  atomic.Int64 // the token

	ctx    context.Context
	cancel context.CancelCauseFunc

	// Under the session's mu.
	over    *LostError // nil while held
	release *call      // the unlock, once asked for
}

// Resource returns the name of what the lease is for, without the namespace.
func (l *Lease) Resource() string { return l.resource }

// Label returns the holder's label.
func (l *Lease) Label() string { return l.label }

// Nonce returns random bits of this grant alone, for the claim of its token. It is a secret.
func (l *Lease) Nonce() token.Nonce { return l.nonce }

// Token returns the token that was claimed for the lease, as [Lease.Claimed] was told: 0 before. An advisory lock numbers
// nothing, so there is no token until the fence gives one.
func (l *Lease) Token() token.Token { return token.Token(l.claimed.Load()) }

// Claimed tells the lease which token was claimed for it, for what it says of itself from then on.
func (l *Lease) Claimed(t token.Token) { l.claimed.Store(int64(t)) }

// Context returns a context that ends when the lease does. Its cause is a *LostError, with ErrReleased behind it after
// a release. It carries the values of the context that acquired the lease, and not its end.
func (l *Lease) Context() context.Context { return l.ctx }

// Done returns the Done channel of the lease's context.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns nil while the lease is held, as far as this process knows, and otherwise a *LostError that says why it is not.
// It looks at the clocks itself and sends nothing. The session may have ended without our knowing yet.
func (l *Lease) Err() error {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.err()
}

func (l *Lease) err() error {
	if l.over == nil {
		l.session.evaluate()
	}
	if l.over == nil {
		return nil
	}
	return l.over
}

// Remaining returns how long the lease may be relied on yet if PostgreSQL is not heard from again: 0 when it is over.
func (l *Lease) Remaining() time.Duration {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.err() != nil {
		return 0
	}
	return l.session.remaining()
}

// Release gives the lease back: the context ends first, then the lock is given back and those who wait are told. It runs on a
// context of its own, bounded by what PostgreSQL may take to answer, since a caller whose ctx was cancelled still
// has to release.
//
// It returns nil when the lease was held until now, and again when it is called again; ErrLost when it was not;
// ErrUnavailable when PostgreSQL did not confirm that it had the lock and gave it back. The session was closed then, with
// all its leases, since a lock of unknown state must not stay on it.
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

// releaseWithin bounds a release that has to wait for its place among what else the session has been asked.
const releaseWithin = 5 * time.Second

// beginRelease asks for the unlock, once.
func (l *Lease) beginRelease() (*call, error) {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.err(); err == nil {
		l.end(&LostError{Resource: l.resource, Token: l.Token(), Reason: ReasonReleased, Err: ErrReleased})
		l.release = s.unlock(l.key, l.turn)
	} else if l.release == nil {
		return nil, err
	}
	return l.release, nil
}

// end marks the lease as over. Called with the session's mu held, once.
func (l *Lease) end(why *LostError) {
	l.over = why
	delete(l.session.leases, l)
	l.cancel(why)
}

// lose ends the lease with its session. Called with the session's mu held.
func (l *Lease) lose(why *doubt) {
	l.end(&LostError{Resource: l.resource, Token: l.Token(), Reason: why.reason, Err: why.err})
	l.turn.Done()
	opts := &l.session.locker.opts
	opts.Logger.Warn("lease lost", "resource", l.resource, "token", l.Token(), "reason", string(why.reason), "error", why.err)
	if opts.Lost != nil {
		go opts.Lost(l, l.over)
	}
}
