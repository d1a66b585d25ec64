package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// ReleaseSealed is Release that also seals the fence: it raises the fence by one. The lease's token is stale from then
// on, and so is every copy of its [Claim] that another process has. After a plain Release, a process with such a copy
// can still write until the next holder claims. Call ReleaseSealed once the work under the lease is done, in other
// processes too. It waits for guarded transactions under the lease, for up to Options.SettleFor.
//
// nil means that the token is stale and the lease was released. A second call also returns nil. The lease is released
// even if the seal fails. Errors in addition to those of Release say that the seal was not made. The error is
// ErrUnavailable if PostgreSQL could not answer, or if guarded transactions stayed open for too long. It is
// ErrOutcomeUnknown if the seal may have been made, and ErrTokenRegressed if the token is the highest possible. The
// token is then valid until the next claim, as after Release.
//
// Inside the function of a transaction that the lease guards, ReleaseSealed returns ErrHeldByCaller and does nothing
// else: the seal would wait for that very transaction. ctx must be the function's.
//
// Like Release it runs on a context of its own, which has the values of ctx. It is safe for concurrent use.
func (l *Lease) ReleaseSealed(ctx context.Context) error {
	if l.guards(ctx) {
		return fmt.Errorf("%w: the seal of %q would wait for the transaction that is open", ErrHeldByCaller, l.resource)
	}
	sealed := l.seal(ctx)
	if l.sealed.Load() {
		sealed = nil // another call was faster, and its release may have ended this one
	}
	released := l.Release(ctx)
	if errors.Is(sealed, ErrLost) && errors.Is(released, ErrLost) {
		return released // both report the same loss
	}
	return joined(sealed, released)
}

// guards reports whether the lease guards an open transaction whose function got ctx.
func (l *Lease) guards(ctx context.Context) bool {
	for h := heldIn(ctx); h != nil; h = h.outer {
		if h.inTx() && slices.Contains(h.leases, l) {
			return true
		}
	}
	return false
}

// seal claims the token above the lease's under a nonce that nobody keeps.
func (l *Lease) seal(ctx context.Context) error {
	if l.sealed.Load() {
		return nil
	}
	until := time.Now().Add(l.store.opts.SettleFor)
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), until.Add(answerTime))
	defer cancel()
	ctx, stop := l.bound(ctx)
	defer stop()
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.beginLift(ctx); err != nil { // the token must not move in the meantime
		return err
	}
	var told []func() // called for each claim, once the lease may be lifted again
	defer func() {
		l.endLift()
		for _, tell := range told {
			tell()
		}
	}()
	if l.sealed.Load() {
		return nil // by another call, in the meantime
	}
	c := Claim{Resource: l.full, Token: max(l.Token(), l.lift.Token), Nonce: token.NewNonce()}
	if c.Token == token.Max {
		return fmt.Errorf("%w: the token of %q is the highest possible", ErrTokenRegressed, l.resource)
	}
	// The next grant should get a number above the seal. If this fails, that grant is lifted.
	if err := l.grant.numberAbove(ctx, c.Token); err != nil && !errors.Is(err, ErrUnavailable) {
		return err
	}
	c.Token++
	err := l.store.raiseSeal(ctx, l, c, until, &told)
	l.sealed.Store(err == nil)
	return err
}

// answerTime is how long PostgreSQL has to report that a seal would have had to wait for too long.
const answerTime = time.Second

// raiseSeal makes the claim of a seal. If the fence is already there, or above, the lease's token is stale.
func (s *Store) raiseSeal(ctx context.Context, l *Lease, c Claim, until time.Time, told *[]func()) error {
	var last error
	for range claimTries {
		tell, err := s.raise(ctx, l, c, until)
		*told = append(*told, tell)
		_, _, refused := refusedAt(err)
		switch {
		case err == nil, refused:
			return nil
		case l.Err() != nil:
			return l.Err()
		case waitedOut(ctx, until, err), ctx.Err() != nil,
			!errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown):
			return withEnd(ctx, err)
		}
		last = err // making the same claim again returns nil again
	}
	return last
}
