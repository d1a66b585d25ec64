package fencepost

import (
	"context"
	"slices"
)

// ReleaseAll releases leases, the last one first, each as [Lease.Release] does. It tries all of them, even if some
// fail. It ignores nil leases, so it can be deferred before an acquire that may fail.
//
// nil means that each lease was held until now, or had been released before. Otherwise the error wraps the error of
// each lease that failed: ErrLost or ErrUnavailable. ctx provides its values only; the end of ctx does not stop the
// releases. ReleaseAll is safe for concurrent use.
func ReleaseAll(ctx context.Context, leases ...*Lease) error {
	var failed []error
	for _, l := range slices.Backward(leases) {
		if l == nil {
			continue
		}
		if err := l.Release(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	return joined(failed...)
}
