package fencepost

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// heal lifts the fence of a lease's resource to a row that is ahead of it, and the lease with it.
//
// It is safe against a true rival: raising a fence never lets anything older in, and where a rival
// has claimed the row's token or more, the strict claim refuses the lift and its word, ErrStale, is
// returned. The lift is made in the lease's own name, so that a heal which ends half way leaves a
// lease that is either below the lift, or carries it: the claim recognises its nonce (see settleLift).
func (s *Store) heal(ctx context.Context, l *Lease, behind Claim, row token.Token) error {
	l.healing.Lock()
	defer l.healing.Unlock()
	if l.Claim() != behind {
		return nil // another goroutine was quicker
	}
	if row == token.Max {
		return fmt.Errorf("%w: a row of %q carries the highest token there is", ErrTokenRegressed, l.resource)
	}
	l.lift = Claim{Resource: l.full, Token: row, Nonce: behind.Nonce}
	if err := s.raiseLift(ctx, l); err != nil {
		return err
	}
	s.regressed(l, behind.Token, row)
	return nil
}

// raiseLift makes the claim of a lift, or finds it made. Called with healing held.
func (s *Store) raiseLift(ctx context.Context, l *Lease) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	err := s.raise(ctx, l, l.lift)
	switch {
	case err == nil:
		l.setClaim(l.lift)
		l.lift = Claim{}
		return nil
	case errors.Is(err, fence.ErrJump):
		err = fmt.Errorf("%w: %w", ErrTokenRegressed, err)
		l.lift = Claim{}
	case errors.Is(err, ErrStale):
		l.lift = Claim{}
	case errors.Is(err, ErrOutcomeUnknown):
		err = unavailable(ctx, err) // of the row nothing was written
	}
	return lostOr([]*Lease{l}, err)
}

// settleLift reports whether a lease that was refused as stale has been lifted above the claim it was refused
// with: by a goroutine that is about it, or by a heal whose answer was lost.
func (s *Store) settleLift(ctx context.Context, l *Lease, refused Claim) bool {
	l.healing.Lock()
	defer l.healing.Unlock()
	if l.lift != (Claim{}) && l.Claim() == refused {
		_ = s.raiseLift(ctx, l) // stale stays stale
	}
	return l.Claim() != refused
}

// healing is the one lift to a row ahead of its fence that a call may make.
type healing struct {
	store *Store
	lease *Lease
	done  bool
}

// after tells from the error of a write under claim c whether to write again, and otherwise what the error is.
func (h *healing) after(ctx context.Context, c Claim, err error) (again bool, _ error) {
	var stale *StaleError
	switch {
	case !errors.As(err, &stale):
		return false, err
	case !stale.Row:
		return h.store.settleLift(ctx, h.lease, c), err
	case c != h.lease.Claim():
		return true, nil // the lease has been lifted meanwhile
	case h.done:
		return false, fmt.Errorf("%w: %w", ErrTokenRegressed, err)
	}
	h.done = true
	if err := h.store.heal(ctx, h.lease, c, stale.Current); err != nil {
		return false, err
	}
	return true, nil
}
