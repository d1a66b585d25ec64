package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// heal lifts the fence of a lease's resource to a row that is ahead of it. It lifts the lease as well.
//
// It is safe against a true rival. Raising a fence never admits an older token. If a rival has claimed the row's token
// or a higher one, the strict claim refuses the lift, and heal returns ErrStale. The lift uses the lease's own nonce.
// If a heal is interrupted, the lease is therefore either below the lift or carries it, because the claim recognises
// its nonce (see awaitLift).
//
// Event handlers run after the lift is done, because a call that they make under the lease may need a lift as well.
func (s *Store) heal(ctx context.Context, l *Lease, behind Claim, row token.Token) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	lifted, tell, err := s.liftTo(ctx, l, behind, row)
	tell()
	if lifted {
		s.regressed(ctx, l, behind.Token, row, false)
	}
	return err
}

// liftTo reports whether it has lifted the lease. It does not if another goroutine has lifted the lease first.
func (s *Store) liftTo(
	ctx context.Context,
	l *Lease,
	behind Claim,
	row token.Token,
) (lifted bool, tell func(), err error) {
	if err := l.beginLift(ctx); err != nil {
		return false, tellNothing, err
	}
	defer l.endLift()
	if l.Claim() != behind {
		return false, tellNothing, nil
	}
	if row == token.Max {
		return false, tellNothing, fmt.Errorf(
			"%w: a row of %q carries the highest possible token",
			ErrTokenRegressed,
			l.resource,
		)
	}
	l.lift = Claim{Resource: l.full, Token: row, Nonce: behind.Nonce}
	tell, err = s.raiseLift(ctx, l)
	return err == nil, tell, err
}

// beginLift waits until no other goroutine lifts the lease, or until ctx ends.
func (l *Lease) beginLift(ctx context.Context) error {
	select {
	case l.turnToLift() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return lostOr([]*Lease{l}, fmt.Errorf("%w: another goroutine is lifting the lease: %w", ErrUnavailable, ctx.Err()))
	}
}

func (l *Lease) endLift() { <-l.turnToLift() }

// raiseLift makes the claim of a lift, or finds that it has been made. Call it after beginLift.
func (s *Store) raiseLift(ctx context.Context, l *Lease) (tell func(), err error) {
	tell, err = s.raise(ctx, l, l.lift, time.Time{})
	switch {
	case err == nil:
		l.setClaim(l.lift)
		l.lift = Claim{}
		return tell, nil
	case errors.Is(err, fence.ErrJump):
		err = fmt.Errorf("%w: %w", ErrTokenRegressed, err)
		l.lift = Claim{}
	case errors.Is(err, ErrStale):
		l.lift = Claim{}
	case errors.Is(err, ErrOutcomeUnknown):
		err = unavailable(ctx, err) // nothing was written to the row
	}
	return tell, lostOr([]*Lease{l}, err)
}

// awaitLift reports whether a lease that was refused as stale has been lifted above the refused claim. Either another
// goroutine has just lifted it, or a heal whose reply was lost did.
func (s *Store) awaitLift(ctx context.Context, l *Lease, refused Claim) bool {
	ctx, stop := l.bound(ctx)
	defer stop()
	s.finishLift(ctx, l, refused)()
	return l.Claim() != refused
}

// finishLift completes a lift that was begun and whose outcome is unknown.
func (s *Store) finishLift(ctx context.Context, l *Lease, refused Claim) (tell func()) {
	if l.beginLift(ctx) != nil {
		return tellNothing
	}
	defer l.endLift()
	if l.lift == (Claim{}) || l.Claim() != refused {
		return tellNothing
	}
	tell, _ = s.raiseLift(ctx, l) // stale stays stale
	return tell
}

// healing counts the lifts, to rows ahead of their fences, that a call may still make.
type healing struct {
	store *Store
	lifts int // that are left
}

// txLifts bounds the lifts of one transaction. Its function may meet several rows that are ahead.
const txLifts = 8

// afterWrite decides, from the error of an autocommit write under claim c, whether to write again. If not, it returns
// the error of the call.
func (h *healing) afterWrite(ctx context.Context, l *Lease, c Claim, err error) (again bool, _ error) {
	var stale *StaleError
	switch {
	case !errors.As(err, &stale):
		return false, err
	case !stale.Row:
		return h.store.awaitLift(ctx, l, c), err
	}
	return h.lift(ctx, l, c, stale.Current, err)
}

// afterTx decides, from the error of a transaction, whether to run it again. If not, it returns the error of the call.
func (h *healing) afterTx(ctx context.Context, r *txRun, err error) (again bool, _ error) {
	ahead, ok := r.ahead(err)
	if !ok {
		return false, err
	}
	return h.lift(ctx, ahead.lease, ahead.claim, ahead.row, err)
}

func (h *healing) lift(ctx context.Context, l *Lease, c Claim, row token.Token, err error) (again bool, _ error) {
	switch {
	case c != l.Claim():
		return true, nil // the lease has been lifted in the meantime
	case h.lifts == 0:
		return false, fmt.Errorf("%w: %w", ErrTokenRegressed, err)
	}
	h.lifts--
	if err := h.store.heal(ctx, l, c, row); err != nil {
		return false, err
	}
	return true, nil
}

// aheadError is the error of a row that is ahead of its fence, met inside a transaction. The fence is lifted after the
// transaction has ended, and not by the call that met the row, because the open transaction itself keeps the fence as
// it is.
type aheadError struct {
	error             // a *StaleError, or a *BatchError
	lease *Lease      // of the row's resource
	claim Claim       // the claim that the transaction had entered
	row   token.Token // the highest of the rows
	in    *guardedTx  // the outermost
}

// Unwrap returns the error of the row's call.
func (e *aheadError) Unwrap() error { return e.error }

// ahead finds the error of a row ahead of its fence, if this run met it.
func (r *txRun) ahead(err error) (*aheadError, bool) {
	if err == nil {
		return nil, false
	}
	var ahead *aheadError
	return ahead, errors.As(err, &ahead) && ahead.in == r.handed
}
