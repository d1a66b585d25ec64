package fencepost

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// healedSince reports whether the lease has been lifted above a claim, waiting for a goroutine that is about
// it: between the lift of the fence and the lease's new claim, the old one is refused as stale.
func (l *Lease) healedSince(c Claim) bool {
	l.healing.Lock()
	defer l.healing.Unlock()
	return l.Claim() != c
}

// heal lifts the fence of a lease's resource to a row that is ahead of it, and the lease above both.
//
// It is safe against a true rival: raising a fence never lets anything older in, and where a rival
// has claimed the row's token or more, the strict claim refuses the lift and its word, ErrStale, is
// returned. The lift is made under a nonce that nobody keeps, so it is nobody's claim.
func (s *Store) heal(ctx context.Context, l *Lease, behind Claim, row token.Token) error {
	l.healing.Lock()
	defer l.healing.Unlock()
	if l.Claim() != behind {
		return nil // another goroutine was quicker
	}
	if row == token.Max {
		return fmt.Errorf("%w: a row of %q carries the highest token there is", ErrTokenRegressed, l.resource)
	}
	ctx, stop := l.bound(ctx)
	defer stop()
	err := s.raise(ctx, l, Claim{Resource: l.full, Token: row, Nonce: token.NewNonce()})
	if errors.Is(err, fence.ErrJump) {
		return fmt.Errorf("%w: %w", ErrTokenRegressed, err)
	}
	if err != nil {
		return lostOr([]*Lease{l}, err)
	}
	s.regressed(l, behind.Token, row)
	if _, err := l.hold.Reissue(ctx, row); err != nil {
		return err
	}
	return s.claim(ctx, l)
}
