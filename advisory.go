package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// NewAdvisory returns a Store without Redis. Its leases are session-level advisory locks of the pool's own database
// (see package advisory), and their tokens are drawn from the fence. Everything that a Store does works, and the fence
// protects as it does with Redis. It also protects when a holder's session ends, PostgreSQL gives the locks to others,
// and the old holder goes on writing.
//
// The pool must connect directly to a primary. If there is a connection pooler in between, even PgBouncer in session
// mode, the first acquire returns ErrInvalid. While leases are held or awaited, and for a short time after that, the
// store takes one connection out of the pool, however many leases there are. That connection does not go back to the
// pool, which may open another in its place.
//
// Of the options, TTL is how long PostgreSQL keeps the leases of a process that it does not hear from (in version 14
// and later; see [advisory.Options]). RenewEvery is how often the session is probed: by default every second, or every
// third of the TTL if that is less. A lease whose session does not answer a probe is lost at most 2 s after the probe.
// CounterIdle has no effect here. A lease has no TTL of its own, so AcquireOptions with a TTL or RenewEvery that
// differs from the store's, or with NoRenewal, MaxHold or ProgressEvery, are ErrInvalid. So are [Lease.Renew] and the
// options PollEvery, NoQueue and Durability.
//
// A store holds at most as many leases as a quarter of the server's lock table, because all sessions share that table.
// Beyond that Acquire returns ErrUnavailable at once.
//
// Waiters of one process are served in the order in which they came. There is no order between processes.
func NewAdvisory(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	s, err := checked(pool, opts)
	if err != nil {
		return nil, err
	}
	if err := s.opts.withoutRedis(); err != nil {
		return nil, err
	}
	v := s.opts
	o := &advisory.Options{
		Namespace:  v.Namespace,
		Label:      v.Label,
		TTL:        v.TTL,
		ProbeEvery: v.RenewEvery,
		Logger:     v.Logger,
		WallClock:  v.WallClock,
	}
	if lost := v.Events.Lost; lost != nil {
		o.Lost = func(l *advisory.Lease, cause *advisory.LostError) {
			lost(context.WithoutCancel(l.Context()), l.Resource(), cause.Token, cause)
		}
	}
	locks, err := advisory.NewLocker(pool, o)
	if err != nil {
		return nil, err
	}
	s.locker = advisoryLocker{locks, v}
	return s, nil
}

// advisoryLocker is a locker over session-level advisory locks.
type advisoryLocker struct {
	locks *advisory.Locker
	opts  Options
}

func (a advisoryLocker) acquire(
	ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions,
) (grant, error) {
	return a.take(ctx, resource, ttl, opts, a.locks.Acquire)
}

func (a advisoryLocker) tryAcquire(
	ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions,
) (grant, error) {
	return a.take(ctx, resource, ttl, opts, a.locks.TryAcquire)
}

func (a advisoryLocker) take(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions,
	take func(context.Context, string, *advisory.AcquireOptions) (*advisory.Lease, error),
) (grant, error) {
	if ttl != a.opts.TTL || opts.NoRenewal || opts.RenewEvery != a.opts.RenewEvery || opts.MaxHold != 0 ||
		opts.ProgressEvery != 0 {
		return nil, invalidf(
			"a lease on an advisory lock lasts as long as its session: it has no TTL, no renewal and no end of its own",
		)
	}
	l, err := take(ctx, resource, &advisory.AcquireOptions{Label: opts.Label})
	if err != nil {
		return nil, err
	}
	return &advisoryGrant{Lease: l}, nil
}

// advisoryGrant is a grant without a number of its own: the fence counts.
//
// Invariant: the lock is kept until every draw under it has been answered. A draw has no number until then, so a draw
// that was left behind would raise the fence above the token of the next holder.
type advisoryGrant struct {
	*advisory.Lease
	pending <-chan struct{} // closed once the draw that the caller left is answered; nil without such a draw
}

// Progress has no effect: the store probes the session, not the work.
func (*advisoryGrant) Progress() {}

// Renew returns ErrInvalid: a lease lasts as long as its session.
func (*advisoryGrant) Renew(context.Context, time.Duration) error {
	return invalidf("a lease on an advisory lock has no TTL of its own")
}

func (*advisoryGrant) numberAbove(context.Context, token.Token) error { return nil }

// claim draws the next token, which is above terms.above. If it is unknown whether a token was drawn, it draws another.
func (g *advisoryGrant) claim(ctx context.Context, l *Lease, terms claimTerms) error {
	if err := g.raiseTo(ctx, l, terms); err != nil {
		return err
	}
	var last error
	for range claimTries {
		c, err := g.drawOnce(ctx, l, terms.until)
		switch again := errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown); {
		case err == nil:
			g.Claimed(c.Token)
			l.setClaim(c)
			return l.Err() // a claim made after the end does not count
		case l.Err() != nil:
			return l.Err()
		case waitedOut(ctx, terms.until, err):
			return withEnd(ctx, &FenceBusyError{Resource: l.resource})
		case !again || ctx.Err() != nil:
			return notDrawn(ctx, err)
		}
		last = err
	}
	return notDrawn(ctx, last)
}

// raiseTo raises the fence to a token. It leaves a fence that is already there, or too far below.
func (g *advisoryGrant) raiseTo(ctx context.Context, l *Lease, terms claimTerms) error {
	if terms.above == 0 {
		return nil
	}
	tell, err := l.store.raise(ctx, l, Claim{Resource: l.full, Token: terms.above, Nonce: token.NewNonce()}, terms.until)
	tell()
	if _, _, refused := refusedAt(err); err == nil || refused {
		return nil
	}
	return unavailable(ctx, err)
}

// longestDraw bounds one statement that draws, so that it ends even if its caller is gone.
const longestDraw = 30 * time.Second

// drawOnce draws one token. It sends one statement after another while each only waits, until ctx ends or the wait is
// over.
func (g *advisoryGrant) drawOnce(ctx context.Context, l *Lease, until time.Time) (Claim, error) {
	for {
		end := time.Now().Add(longestDraw)
		if before, ok := pgclaim.BeforeEnd(ctx); ok && before.Before(end) {
			end = before
		}
		if !until.IsZero() && until.Before(end) {
			end = until
		}
		c, err := g.drawUntil(ctx, l, end)
		if !pgerr.TimedOut(err) || ctx.Err() != nil || !until.IsZero() && !time.Now().Before(until) {
			return c, err
		}
		if pgclaim.AwaitEnd(ctx) {
			return c, fmt.Errorf("%w: %w: %w", err, pgclaim.ErrWaited, ctx.Err())
		}
	}
}

// drawUntil sends one draw. If ctx ends, it returns before the draw is answered.
func (g *advisoryGrant) drawUntil(ctx context.Context, l *Lease, end time.Time) (c Claim, err error) {
	detached, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.Add(answerTime))
	answered := make(chan struct{})
	var drawn Claim
	var failed error
	go func() {
		defer close(answered)
		defer cancel()
		drawn, failed = l.store.sendDraw(detached, l, end)
	}()
	select {
	case <-answered:
		return drawn, failed
	case <-ctx.Done():
		g.pending = answered
		return Claim{}, fmt.Errorf("%w: draw %q: %w", ErrUnavailable, l.full, ctx.Err())
	}
}

func (s *Store) sendDraw(ctx context.Context, l *Lease, end time.Time) (c Claim, err error) {
	tell, err := s.claimOn(ctx, l, end, func(conn *pgx.Conn, o *pgclaim.RaiseOptions) (Claim, error) {
		c, err = pgclaim.Draw(ctx, conn, l.full, l.hold.Nonce(), o)
		return c, err
	})
	tell()
	return c, err
}

// Release gives the lock back. If a draw has not been answered, it does so in the background: only the lock has to wait
// for the answer.
func (g *advisoryGrant) Release(ctx context.Context) error {
	if g.pending == nil {
		return g.Lease.Release(ctx)
	}
	go func() {
		<-g.pending
		_ = g.Lease.Release(ctx) // a failure ends the session, and its leases report it
	}()
	return nil
}
