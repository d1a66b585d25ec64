package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// claimTries bounds how often a grant's token is lifted before the store gives up. One lift is enough unless another
// process moves the fence in the meantime.
const claimTries = 5

// claimTerms are the conditions of a claim.
type claimTerms struct {
	above token.Token // the claimed token must exceed this
	until time.Time   // when it stops waiting for guarded transactions under older tokens; zero if only ctx ends the wait
	raise raising     // makes the claim of a token; nil: a transaction of its own
}

// raising raises the fence to the token of a claim. See claimWait for tell.
type raising func(ctx context.Context, l *Lease, c Claim, until time.Time) (tell func(), err error)

// claim claims a token for a lease that has just been granted.
func (s *Store) claim(ctx context.Context, l *Lease, g grant, terms claimTerms) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	return g.claim(ctx, l, terms)
}

// redisGrant is a grant that already has a token, because Redis counts.
type redisGrant struct{ *lease.Lease }

// claim raises the fence to the grant's token. If the fence refuses it, or if the outcome of the claim is unknown, the
// grant is given a token just above and claims again.
func (g redisGrant) claim(ctx context.Context, l *Lease, terms claimTerms) error {
	l.counterWasAbsent = g.CounterWasAbsent()
	if g.Token() <= terms.above {
		if _, err := g.Reissue(ctx, terms.above); err != nil {
			return err
		}
	}
	raise := terms.raise
	if raise == nil {
		raise = l.store.raise
	}
	var last error
	for range claimTries {
		// A lift to a row may have taken the lease above the grant's own number.
		c := Claim{Resource: l.full, Token: max(g.Token(), l.Token()), Nonce: g.Nonce()}
		var tell func()
		tell, last = raise(ctx, l, c, terms.until)
		tell()
		at, floor, refused := refusedAt(last)
		switch {
		case last == nil:
			l.setClaim(c)
			return l.Err() // a claim after the deadline is useless
		case l.Err() != nil:
			return l.Err()
		case waitedOut(ctx, terms.until, last):
			return withEnd(ctx, &FenceBusyError{Resource: l.resource})
		case refused:
			l.store.regressed(ctx, l, c.Token, at, floor)
		case errors.Is(last, ErrOutcomeUnknown) && ctx.Err() == nil:
			at = c.Token // claimed or not, the next token is above it
		case errors.Is(last, ErrUnavailable) && ctx.Err() == nil:
			continue // nothing was claimed; the pool's connection may have been dead
		default:
			return unavailable(ctx, last)
		}
		if _, err := g.Reissue(ctx, at); err != nil {
			return err
		}
	}
	if errors.Is(last, ErrUnavailable) || errors.Is(last, ErrOutcomeUnknown) {
		return unavailable(ctx, last)
	}
	return fmt.Errorf("%w: %q, after %d tries: %w", ErrTokenRegressed, l.resource, claimTries, last)
}

// waitedOut reports whether a claim ended because it would have had to wait past until, or past the end of ctx.
// PostgreSQL must have said so: a server that does not answer tells nothing about the fence.
func waitedOut(ctx context.Context, until time.Time, err error) bool {
	return !until.IsZero() && pgerr.TimedOut(err) && ctx.Err() == nil || errors.Is(err, pgclaim.ErrWaited)
}

// numberAbove moves the counter, and with it the grant's own number.
func (g redisGrant) numberAbove(ctx context.Context, tok token.Token) error {
	_, err := g.Reissue(ctx, tok)
	return err
}

// raise sends one claim. It checks the deadline once it has a connection.
func (s *Store) raise(ctx context.Context, l *Lease, c Claim, until time.Time) (tell func(), err error) {
	return s.claimOn(ctx, l, until, func(conn *pgx.Conn, o *pgclaim.RaiseOptions) (Claim, error) {
		return c, pgclaim.Raise(ctx, conn, c, o)
	})
}

// claimOn runs a claim on a connection of the pool. See claimWait for tell.
func (s *Store) claimOn(
	ctx context.Context, l *Lease, until time.Time, claim func(*pgx.Conn, *pgclaim.RaiseOptions) (Claim, error),
) (tell func(), err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return tellNothing, fmt.Errorf("%w: claim: %w", ErrUnavailable, err)
	}
	defer conn.Release()
	if err := l.Err(); err != nil {
		return tellNothing, err
	}
	began := time.Now()
	o := &pgclaim.RaiseOptions{Label: l.hold.Label()}
	if !until.IsZero() {
		o.Wait = max(time.Millisecond, time.Until(until))
	}
	c, err := claim(conn.Conn(), o)
	fence.Discard(conn.Conn(), err)
	return s.claimWait(ctx, l, c.Token, time.Since(began)), err
}

// refusedAt returns the fence's token if the fence refused a claim, or the floor if there is no fence.
func refusedAt(err error) (at token.Token, floor, refused bool) {
	if err == nil {
		return 0, false, false
	}
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		return stale.Current, stale.Floor, true
	}
	var jump *fence.JumpError
	if errors.As(err, &jump) {
		return jump.Current, false, true
	}
	return 0, false, false
}
