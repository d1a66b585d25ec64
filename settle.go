package fencepost

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/fence"
)

// settle finds out what became of a transaction whose COMMIT was not answered, and returns nil where it was
// committed. It outlives ctx, within a bound of its own, and asks through another connection.
//
// Invariant: it never guesses. nil and ErrUnavailable (nothing was written) are PostgreSQL's own word, of the
// same life of the same server; otherwise the error stays ErrOutcomeUnknown.
func (s *Store) settle(ctx context.Context, leases []*Lease, mark fence.Mark, unknown error) error {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.SettleFor)
	defer cancel()
	committed, err := fence.Settle(detached, s.pool, mark)
	switch {
	case err != nil:
		s.opts.Logger.Warn("reply to COMMIT lost, outcome unknown", "resource", leases[0].resource, "error", err)
		return fmt.Errorf("%w (%v)", unknown, err) //nolint:errorlint // the end of this call's own patience is not the caller's
	case committed:
		s.opts.Logger.Info("reply to COMMIT lost, and the transaction committed", "resource", leases[0].resource)
		return nil
	}
	s.opts.Logger.Info("reply to COMMIT lost, and the transaction rolled back", "resource", leases[0].resource)
	notCommitted := fmt.Errorf("%w: rolled back, as PostgreSQL says: %v", ErrUnavailable, unknown) //nolint:errorlint // no longer unknown
	return lostOr(leases, errors.Join(notCommitted, ctx.Err()))
}
