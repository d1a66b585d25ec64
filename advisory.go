package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// NewAdvisory makes a Store without Redis: its leases are session-level advisory locks of the pool's own database (see package
// advisory), and their tokens are drawn from the fence. Everything that a Store does works, and the fence protects as
// ever: also when the session of a holder ends, PostgreSQL gives its locks to others, and the holder writes on.
//
// The pool has to lead straight to a primary: where a pooler stands between, PgBouncer in session mode included, the first acquire is
// refused with ErrInvalid. One connection is taken out of the pool for good while leases are held or awaited, and a
// little longer, whatever their number; the pool may open another in its place.
//
// Of the options, TTL is how long PostgreSQL keeps the leases of a process that it hears nothing from (from version 14 on;
// see [advisory.Options]), and RenewEvery how often the session is asked for a sign of life: by default every second, or a third of
// the TTL where that is less. A lease whose session has gone silent is lost 2 s after that at the latest. CounterIdle is of no
// use here. A lease has no TTL of its own: AcquireOptions with another TTL or RenewEvery than the store's, or with
// NoRenewal, are ErrInvalid.
//
// Waiters of one process are served in the order they came; between processes there is no order.
func NewAdvisory(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	v, err := checked(pool, opts)
	if err != nil {
		return nil, err
	}
	o := &advisory.Options{
		Namespace: v.Namespace, Label: v.Label, TTL: v.TTL, ProbeEvery: v.RenewEvery, Logger: v.Logger, WallClock: v.WallClock,
	}
	if lost := v.Events.Lost; lost != nil {
		o.Lost = func(l *advisory.Lease, cause *advisory.LostError) { lost(l.Resource(), cause.Token, cause) }
	}
	locks, err := advisory.NewLocker(pool, o)
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, locker: advisoryLocker{locks, v}, opts: v}, nil
}

// advisoryLocker is a locker over session-level advisory locks.
type advisoryLocker struct {
	locks *advisory.Locker
	opts  Options
}

func (a advisoryLocker) acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error) {
	return a.take(ctx, resource, ttl, opts, a.locks.Acquire)
}

func (a advisoryLocker) tryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error) {
	return a.take(ctx, resource, ttl, opts, a.locks.TryAcquire)
}

func (a advisoryLocker) take(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions,
	take func(context.Context, string, *advisory.AcquireOptions) (*advisory.Lease, error),
) (hold, error) {
	if ttl != a.opts.TTL || opts.NoRenewal || opts.RenewEvery != a.opts.RenewEvery {
		return nil, invalidf("a lease on an advisory lock lasts as long as its session: it has no TTL and no renewal of its own")
	}
	l, err := take(ctx, resource, &advisory.AcquireOptions{Label: opts.Label})
	if err != nil {
		return nil, err
	}
	return advisoryHold{l}, nil
}

// advisoryHold is a grant without a number of its own.
type advisoryHold struct{ *advisory.Lease }

// CounterWasAbsent reports what it does of Redis: there is no counter to be lost.
func (advisoryHold) CounterWasAbsent() bool { return false }

// Reissue is for grants with a number.
func (advisoryHold) Reissue(context.Context, token.Token) (token.Token, error) {
	return 0, invalidf("the tokens of advisory locks come from the fence")
}

// draw claims the token that comes next for a lease. Where it is unknown whether one was drawn, it draws the next.
func (s *Store) draw(ctx context.Context, l *Lease, h advisoryHold) error {
	var last error
	for range claimTries {
		c, err := s.drawOnce(ctx, l)
		switch again := errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown); {
		case err == nil:
			h.Claimed(c.Token)
			l.setClaim(c)
			return l.Err() // a claim that came after the end is of no use
		case l.Err() != nil:
			return l.Err()
		case !again || ctx.Err() != nil:
			return notDrawn(ctx, err)
		}
		last = err
	}
	return notDrawn(ctx, last)
}

// notDrawn says of a grant whose token could not be drawn that nothing was acquired, whatever became of the claim.
func notDrawn(ctx context.Context, err error) error {
	if errors.Is(err, ErrStale) {
		return fmt.Errorf("%w: the fence carries the highest token there is: %w", ErrTokenRegressed, err)
	}
	return unavailable(ctx, err)
}

func (s *Store) drawOnce(ctx context.Context, l *Lease) (c Claim, err error) {
	err = s.claimOn(ctx, l, func(conn *pgx.Conn, o *fence.RaiseOptions) (Claim, error) {
		c, err = fence.Draw(ctx, conn, l.full, l.hold.Nonce(), o)
		return c, err
	})
	return c, err
}
