package fencepost

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
)

// Lease is permission to work on one resource, claimed in PostgreSQL. It is safe for concurrent use.
type Lease struct {
	store    *Store
	resource string
	full     string // with the namespace, as the fence knows it
	hold     hold
	grant    grant // the hold; nil if that is a transaction, whose lease no user gets

	ctxOnce sync.Once
	ctx     context.Context // made on first use: see Context

	counterWasAbsent bool // in Redis, when the lease was granted
	heldFor          holdTime
	sealed           atomic.Bool
	inDo             atomic.Bool // Do makes the claim in its transaction, which may be run again: see foldedClaim

	lifting chan struct{} // holds one value while a goroutine lifts the fence to a row; see turnToLift
	lift    fence.Claim   // begun, but not known to be made or refused; under lifting

	mu    sync.Mutex
	claim pgclaim.Sent // without the arguments until a write needs them

	bounds callBounds
}

// newGrantedLease returns the lease of a grant.
func newGrantedLease(s *Store, resource, full string, g grant) *Lease {
	l := newLease(s, resource, full, g)
	l.grant = g
	return l
}

func newLease(s *Store, resource, full string, h hold) *Lease {
	return &Lease{store: s, resource: resource, full: full, hold: h}
}

// newGrantedLeases returns the leases of grants, made at once: for leases that end together.
func newGrantedLeases(s *Store, resources []string, grants []redisGrant) []*Lease {
	room, leases := make([]Lease, len(grants)), make([]*Lease, len(grants))
	for i, g := range grants {
		l := &room[i]
		l.store, l.resource, l.full, l.hold, l.grant = s, resources[i], s.qualified(resources[i]), g, g
		leases[i] = l
	}
	return leases
}

// turnToLift returns the channel that holds one value while a goroutine lifts the fence. Few leases need it.
func (l *Lease) turnToLift() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lifting == nil {
		l.lifting = make(chan struct{}, 1)
	}
	return l.lifting
}

// Resource returns the name of the lease's resource, without the namespace.
func (l *Lease) Resource() string { return l.resource }

// Token returns the fencing token that has been claimed for the lease. It changes if a write has to lift the fence to a
// row that is ahead of it.
func (l *Lease) Token() Token { return l.Claim().Token }

// Claim returns the value that another process needs to write in this holder's name with package fence. It is a secret.
func (l *Lease) Claim() Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claim.Claim
}

// sent returns the claim with the arguments that send it.
func (l *Lease) sent() pgclaim.Sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.claim.Args == nil {
		l.claim = pgclaim.Send(l.claim.Claim)
	}
	return l.claim
}

func (l *Lease) setClaim(c Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claim = pgclaim.Sent{Claim: c}
}

// Context returns a context that ends when the lease does. That is at its deadline at the latest, and at once if
// PostgreSQL refuses its token as stale. Its cause is a *LostError. It carries the lease (see FromContext) and the
// values of the context that acquired it.
func (l *Lease) Context() context.Context {
	l.ctxOnce.Do(func() { l.ctx = holding(l.hold.Context(), l) })
	return l.ctx
}

// Done returns the Done channel of the lease's context.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held and otherwise a *LostError that says why it is not. It reads the clocks
// itself and sends nothing. If PostgreSQL has refused the lease's token, in a call that was given the lease or whose
// context carries it, the error matches ErrStale as well.
func (l *Lease) Err() error { return l.hold.Err() }

// Remaining returns how much longer the lease lasts without another renewal. It is 0 if the lease is over.
func (l *Lease) Remaining() time.Duration { return l.grant.Remaining() }

// Progress reports that the work advances. It has an effect only with AcquireOptions.ProgressEvery. It sends nothing.
func (l *Lease) Progress() { l.grant.Progress() }

// Release gives the lease back. Call it once the work under the lease is done. It runs on a context of its own with its
// own time limit, because a caller whose ctx was cancelled still has to release. That context has the values of ctx.
//
// It returns nil if the lease was held until now, and if it is called again. It returns ErrLost if the lease was not
// held until now; the lease of another holder is not touched. It returns ErrUnavailable if Redis could not be reached;
// the lease then ends with its TTL, or by another call.
func (l *Lease) Release(ctx context.Context) error {
	l.heldFor.releasing()
	err := l.grant.Release(ctx)
	if err == nil {
		l.store.released(ctx, l)
	}
	return err
}
