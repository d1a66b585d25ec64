package fencepost

import (
	"context"
	"slices"

	"github.com/fencepost-pg/fencepost/lease"
)

// ReleaseAll releases leases, the last one first, each as [Lease.Release] does. Leases in Redis are released together,
// in one round trip. It tries all of them, even if some fail. It ignores nil leases, so it can be deferred before an
// acquire that may fail.
//
// nil means that each lease was held until now, or had been released before. Otherwise the error wraps the error of
// each lease that failed: ErrLost or ErrUnavailable. ctx provides its values only; the end of ctx does not stop the
// releases. ReleaseAll is safe for concurrent use.
func ReleaseAll(ctx context.Context, leases ...*Lease) error {
	var given []*Lease
	for _, l := range slices.Backward(leases) {
		if l != nil {
			given = append(given, l)
		}
	}
	var failed []error
	for _, err := range releaseEach(ctx, given) {
		if err != nil {
			failed = append(failed, err)
		}
	}
	return joined(failed...)
}

// releaseEach releases leases, those in Redis together, and returns the result of each.
func releaseEach(ctx context.Context, leases []*Lease) (errs []error) {
	errs = make([]error, len(leases))
	var inRedis []*lease.Lease
	var places []int
	for i, l := range leases {
		if g, ok := l.hold.(redisGrant); ok {
			l.heldFor.releasing()
			inRedis, places = append(inRedis, g.Lease), append(places, i)
		} else {
			errs[i] = l.Release(ctx)
		}
	}
	for i, err := range lease.ReleaseAll(ctx, inRedis) {
		l := leases[places[i]]
		if errs[places[i]] = err; err == nil {
			l.store.released(ctx, l)
		}
	}
	return errs
}
