package fencepost

import (
	"context"
	"errors"
)

// With acquires the lease of a resource, runs fn under it, and releases it afterwards, even if fn panics or calls
// runtime.Goexit. It is for work outside transactions, as [Store.Do] is for work inside one. A nil opts means the
// store's settings.
//
// The context that fn gets is that of [Lease.Bind]: it ends with ctx and with the lease, and carries the lease. fn must
// write to PostgreSQL through the lease, with [Store.Tx], [Once] or the methods of a [Table]. Other effects are not
// fenced. fn must stop when its context ends, and even then another holder may already be working.
//
// For a job that should run on one of many hosts, set AcquireOptions.NoWait. On the other hosts With then returns
// ErrHeld at once.
//
// nil means that fn returned nil, and that the lease was held until then. If the lease was lost while fn ran, the error
// is a *LostError, whatever fn returned. The error wraps fn's own error as well, so errors.Is finds both; but if fn's
// error is ErrOutcomeUnknown, it is returned alone. fn may release the lease itself. If the release does not reach
// Redis, its error is joined to fn's error. If fn returned nil, the failed release is only logged, and the lease ends
// with its TTL.
//
// Errors other than fn's are those of [Store.Acquire], and ErrInvalid for a nil fn, before anything is sent. ctx bounds
// acquiring and fn, but not the release. With is safe for concurrent use.
func (s *Store) With(
	ctx context.Context, resource string, opts *AcquireOptions, fn func(ctx context.Context, l *Lease) error,
) (err error) {
	if fn == nil {
		return invalidf("no function to run under the lease")
	}
	l, err := s.Acquire(ctx, resource, opts)
	if err != nil {
		return err
	}
	bound, cancel := l.Bind(ctx)
	defer func() {
		cancel()
		err = s.releaseAfter(ctx, l, err)
	}()
	return fn(bound, l)
}

// releaseAfter releases the lease of work that has ended with err, and returns the error of the whole call.
func (s *Store) releaseAfter(ctx context.Context, l *Lease, err error) error {
	released := l.Release(ctx)
	switch {
	case released == nil:
	case err == nil && errors.Is(released, ErrLost):
		return released
	case err == nil || errors.Is(err, ErrOutcomeUnknown):
		s.notReleased(l, released)
	case !errors.Is(err, released): // err may already report the loss
		return joined(err, released)
	}
	return err
}

// releaseAfterTx is releaseAfter for work that was one transaction. The outcome is whether the transaction was
// committed, whatever happened to the release.
func (s *Store) releaseAfterTx(ctx context.Context, l *Lease, err error) error {
	released := l.Release(ctx)
	switch {
	case released == nil:
	case errors.Is(err, ErrStale) && errors.Is(released, ErrStale): // one report of PostgreSQL's refusal is enough
	case err != nil && !errors.Is(err, ErrOutcomeUnknown):
		return joined(err, released)
	default:
		s.notReleased(l, released)
	}
	return err
}

// notReleased logs that a lease was not released after its work.
func (s *Store) notReleased(l *Lease, why error) {
	s.opts.Logger.Warn("lease not released after its work", "resource", l.resource, "error", why)
}
