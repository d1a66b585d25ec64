package fencepost

import (
	"context"
	"errors"
	"slices"
)

// AcquireAll acquires the leases of several resources, all or none, and returns them in the order in which
// they were acquired: that of the resources' names, byte by byte, the same for everybody, so that callers with
// overlapping sets do not wait for each other in a circle. A resource named twice counts once. The leases
// go to [Store.Tx] as they are, and each is released on its own.
//
// A lease that is held already is renewed while the next is waited for; with NoRenewal it runs out meanwhile.
// Where one is lost before all are there, the others are released, and the error is ErrLost.
//
// Errors besides that are those of [Store.Acquire], and ErrInvalid for no resource at all, before anything is sent.
// ctx bounds all of it, and not the release of what was got. After an error nothing is held.
func (s *Store) AcquireAll(ctx context.Context, resources []string, opts *AcquireOptions) ([]*Lease, error) {
	sorted, err := s.sortedNames(resources)
	if err != nil {
		return nil, err
	}
	leases := make([]*Lease, 0, len(sorted))
	bounded := ctx
	for _, resource := range sorted {
		l, err := s.Acquire(bounded, resource, opts)
		if err != nil {
			return nil, s.giveBack(ctx, leases, lostOr(leases, err))
		}
		leases = append(leases, l)
		// Waiting for the rest makes no sense any more once this one is lost.
		within, stop := l.bound(bounded)
		defer stop()
		bounded = within
	}
	if err := over(leases); err != nil {
		return nil, s.giveBack(ctx, leases, err)
	}
	return leases, nil
}

func (s *Store) sortedNames(resources []string) ([]string, error) {
	if len(resources) == 0 {
		return nil, invalidf("no resource to acquire")
	}
	for _, resource := range resources {
		if _, err := s.qualify(resource); err != nil {
			return nil, err
		}
	}
	sorted := slices.Clone(resources)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}

// giveBack releases, the last acquired first, and returns why.
func (s *Store) giveBack(ctx context.Context, leases []*Lease, why error) error {
	for _, l := range slices.Backward(leases) {
		if err := l.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
			s.opts.Logger.Warn("lease of an incomplete set not released", "resource", l.resource, "error", err)
		}
	}
	return why
}
