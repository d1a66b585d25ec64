package fencepost

import (
	"context"
	"errors"
	"slices"
)

// AcquireAll acquires the leases of several resources, all or none. It waits for them, and returns them, in the order
// of the resources' names, compared byte by byte. That order is the same for every caller, so callers with overlapping
// sets do not deadlock. A resource named twice counts once. Pass the leases to [Store.Tx] and then to [ReleaseAll], or
// release each one by itself.
//
// If all of them are free, Redis is asked for all in one round trip (see [lease.Manager.TryAcquireAll]), and PostgreSQL
// claims all in one (up to 1,000 together). If another holder has one, the leases behind it are given back at once; the
// call then waits for it, holding only those before it, and asks for the rest again. Another caller may therefore find
// a lease held for a moment that this one does not keep.
//
// With AcquireOptions.NoWait the call returns ErrHeld for the first lease that another holder has, and releases those
// that it has acquired.
//
// While the call waits for the next lease, it renews those that it has acquired; with NoRenewal they may expire in the
// meantime. If one of them is lost before all are acquired, the others are released, and the error is ErrLost.
//
// Other errors are those of [Store.Acquire], and ErrInvalid if there is no resource; in that case nothing is sent.
// ErrHeldByCaller, for a resource that the caller already holds, is returned before the first lease is acquired. ctx
// bounds the whole call except the release of acquired leases. After an error nothing is held.
func (s *Store) AcquireAll(ctx context.Context, resources []string, opts *AcquireOptions) ([]*Lease, error) {
	sorted, err := s.sortedNames(ctx, resources)
	if err != nil {
		return nil, err
	}
	leases, _, err := s.acquireSorted(ctx, sorted, opts, false)
	return leases, err
}

// acquireSorted is AcquireAll for sorted names. If claimLater is set and all leases were free at once, it leaves their
// claims to the caller: claimed is false.
func (s *Store) acquireSorted(
	ctx context.Context, sorted []string, opts *AcquireOptions, claimLater bool,
) (leases []*Lease, claimed bool, err error) {
	if err := opts.check(); err != nil {
		return nil, false, err
	}
	bounded, add, stop := boundByAll(ctx)
	defer stop()
	a := &acquiring{store: s, opts: opts, add: add, claimLater: claimLater, leases: make([]*Lease, 0, len(sorted))}
	for len(a.leases) < len(sorted) {
		if err := a.next(bounded, sorted[len(a.leases):]); err != nil {
			return nil, false, s.giveBack(ctx, a.leases, lostOr(a.leases, err))
		}
	}
	if err := over(a.leases); err != nil {
		return nil, false, s.giveBack(ctx, a.leases, err)
	}
	return a.leases, !a.unclaimed, nil
}

func (s *Store) sortedNames(ctx context.Context, resources []string) ([]string, error) {
	if len(resources) == 0 {
		return nil, invalidf("no resource to acquire")
	}
	if err := s.checkNames(ctx, resources); err != nil {
		return nil, err
	}
	sorted := slices.Clone(resources)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}

// checkNames refuses resources that cannot be acquired.
func (s *Store) checkNames(ctx context.Context, resources []string) error {
	for _, resource := range resources {
		full, err := s.qualify(resource)
		if err != nil {
			return err
		}
		if err := s.checkHeld(ctx, resource, full); err != nil {
			return err
		}
	}
	return nil
}

// giveBack releases the leases, the last acquired first, and returns why.
func (s *Store) giveBack(ctx context.Context, leases []*Lease, why error) error {
	backward := slices.Clone(leases)
	slices.Reverse(backward)
	for i, err := range releaseEach(ctx, backward) {
		if err != nil && !errors.Is(err, ErrLost) {
			s.opts.Logger.Warn("lease of an incomplete set not released", "resource", backward[i].resource, "error", err)
		}
	}
	return why
}
