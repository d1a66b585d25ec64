package fencepost

import (
	"context"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/fence"
)

// Lease is permission to work on one resource, claimed in PostgreSQL. It is safe for concurrent use.
type Lease struct {
	store    *Store
	resource string
	full     string // with the namespace, as the fence knows it
	hold     hold
	ctx      context.Context

	healing sync.Mutex  // one goroutine at a time lifts the fence to a row
	lift    fence.Claim // begun, and not yet known to be made or refused; under healing

	mu    sync.Mutex
	claim fence.Claim
}

func newLease(s *Store, resource, full string, h hold) *Lease {
	l := &Lease{store: s, resource: resource, full: full, hold: h}
	l.ctx = context.WithValue(h.Context(), leaseKey{}, l)
	return l
}

type leaseKey struct{}

// FromContext returns the lease that ctx was derived from: the lease's own context, or the one that
// Do and Tx hand to their function. Under a Tx with several leases it is the first of them.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(*Lease)
	return l, ok
}

// Resource returns the name of what the lease is for, without the namespace.
func (l *Lease) Resource() string { return l.resource }

// Token returns the fencing token that has been claimed for the lease. It changes when a write had to
// lift the fence to a row that was ahead of it.
func (l *Lease) Token() Token { return l.Claim().Token }

// Claim returns what another process needs in order to write in this holder's name with package
// fence. It is a secret.
func (l *Lease) Claim() Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claim
}

func (l *Lease) setClaim(c Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claim = c
}

// nextClaim is the claim to make for the token that the lease layer has issued last.
func (l *Lease) nextClaim() Claim {
	return Claim{Resource: l.full, Token: l.hold.Token(), Nonce: l.hold.Nonce()}
}

// Context returns a context that ends when the lease does, by its deadline at the latest. Its cause
// is a *LostError. It carries the lease (see FromContext) and the values of the context that
// acquired it.
func (l *Lease) Context() context.Context { return l.ctx }

// Done returns the Done channel of the lease's context.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns nil while the lease is held and otherwise a *LostError that says why it is not. It looks
// at the clocks itself and sends nothing.
func (l *Lease) Err() error { return l.hold.Err() }

// Remaining returns how long the lease lasts yet without another renewal: 0 when it is over.
func (l *Lease) Remaining() time.Duration { return l.hold.Remaining() }

// Release gives the lease back once the work under it is done. It runs on a context of its own with
// its own bound, since a caller whose ctx was cancelled still has to release; ctx gives it its values.
//
// It returns nil when the lease was held until now, and when it is called again; ErrLost when it was
// not, in which case nobody else's lease is touched; ErrUnavailable when Redis could not be told,
// in which case the lease ends with its TTL, or by another call.
func (l *Lease) Release(ctx context.Context) error { return l.hold.Release(ctx) }

// bound returns ctx, ended also by the end of the lease and with its cause.
func (l *Lease) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	held := l.hold.Context()
	stop := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
