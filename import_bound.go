package fencepost

import (
	"context"
	"slices"
	"sync"

	"github.com/fencepost-pg/fencepost/lease"
)

// lossBounds are the contexts that end if one of several leases is lost. A context for each lease, as in boundByAll,
// would take a tenth of the time that this process spends on a row of an import.
type lossBounds struct {
	mu  sync.Mutex
	all []*lossBound
}

// lossBound is one such context.
type lossBound struct {
	leases []*Lease // all in Redis
	end    context.CancelCauseFunc
}

// boundByLoss is boundByAll for leases that only the caller can release, and does not release before stop.
//
// Invariant: a lease that is lost ends the context, with its *LostError. One that was lost before the bound was listed
// is over by then, and one that is lost later reaches lossBounds.lost.
func (s *Store) boundByLoss(ctx context.Context, leases []*Lease) (bounded context.Context, stop context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	b := &lossBound{leases: leases, end: end}
	s.bounds.add(b)
	if err := over(leases); err != nil {
		end(err)
	}
	return ctx, func() {
		s.bounds.remove(b)
		end(nil)
	}
}

func (b *lossBounds) add(one *lossBound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, one)
}

func (b *lossBounds) remove(one *lossBound) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(b.all, func(o *lossBound) bool { return o == one })
}

// lost ends the contexts of the lease l. Each is taken off the list, because often all leases of a server are lost.
func (b *lossBounds) lost(l *lease.Lease, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = slices.DeleteFunc(b.all, func(o *lossBound) bool {
		if !o.has(l) {
			return false
		}
		o.end(cause)
		return true
	})
}

func (b *lossBound) has(l *lease.Lease) bool {
	return slices.ContainsFunc(b.leases, func(of *Lease) bool { return of.hold == hold(redisGrant{l}) })
}
