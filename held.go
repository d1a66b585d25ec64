package fencepost

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/redis/go-redis/v9"
)

// held records, in a context, the leases that the caller holds. A derived context adds a record, so the chain of
// records matches the chain of calls, the innermost first.
type held struct {
	leases []*Lease   // the first is the one that FromContext returns
	tx     *guardedTx // the transaction that the leases guard; nil outside of one
	outer  *held
}

type heldKey struct{}

func heldIn(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

// holding returns a copy of ctx that also records these leases.
func holding(ctx context.Context, leases ...*Lease) context.Context {
	return (&held{leases: leases}).in(ctx)
}

// in returns a copy of ctx with this record, which is new.
func (h *held) in(ctx context.Context) context.Context {
	h.outer = heldIn(ctx)
	return context.WithValue(ctx, heldKey{}, h)
}

// inTx reports whether the function of the transaction is still running.
func (h *held) inTx() bool { return h.tx != nil && !h.tx.returned.Load() }

// find returns the lease of a resource that excludes another lease of the store s.
func (h *held) find(s *Store, full string) *Lease {
	for _, l := range h.leases {
		if l.full == full && l.store.meets(s) {
			return l
		}
	}
	return nil
}

// FromContext returns the lease that ctx carries. The lease's own context carries it, and so does the context that Do
// and Tx pass to their function. In a Tx with several leases it is the first of them. In the function of an
// [AdvisoryTx] there is none: use [ClaimFromContext].
func FromContext(ctx context.Context) (*Lease, bool) {
	h := heldIn(ctx)
	if h == nil || h.leases[0].grant == nil {
		return nil, false
	}
	return h.leases[0], true
}

// ClaimFromContext returns the claim under which the code that got ctx writes: the claim of the lease that
// [FromContext] returns, or that of the transaction of an [AdvisoryTx]. Use its Token to stamp rows with SQL. Its
// Resource is the full name (see [Store.FullName]). Its nonce is a secret.
//
// The claim of an AdvisoryTx is committed, or rolled back, together with the transaction. No other process can use it.
func ClaimFromContext(ctx context.Context) (Claim, bool) {
	h := heldIn(ctx)
	if h == nil {
		return Claim{}, false
	}
	return h.leases[0].Claim(), true
}

// checkHeld refuses to acquire a lease that the caller already holds in an outer call. The caller would wait for
// itself: for the lease, or for the transaction that it guards. A lease that is over does not count once its
// transaction has ended.
func (s *Store) checkHeld(ctx context.Context, resource, full string) error {
	for h := heldIn(ctx); h != nil; h = h.outer {
		if l := h.find(s, full); l != nil && (h.inTx() || l.Err() == nil) {
			return fmt.Errorf("%w: %q: see Store.Join", ErrHeldByCaller, resource)
		}
	}
	return nil
}

// checkNested refuses a transaction under a lease that guards an open transaction of an outer call. The inner
// transaction would wait for rows that the outer one has locked, and for claims that wait for the outer one.
func (s *Store) checkNested(ctx context.Context, leases []*Lease) error {
	for _, l := range leases {
		if err := l.checkClaimed(); err != nil {
			return err
		}
	}
	for h := heldIn(ctx); h != nil; h = h.outer {
		if !h.inTx() {
			continue
		}
		for _, l := range leases {
			if h.find(s, l.full) != nil {
				return fmt.Errorf("%w: a transaction under the lease of %q is open: see Store.Join", ErrHeldByCaller, l.resource)
			}
		}
	}
	return nil
}

// meets reports whether leases of the two stores for one resource exclude each other, or their claims wait for each
// other. That is so if the stores share a database or a Redis client, as far as that can be determined here.
func (s *Store) meets(o *Store) bool {
	return s == o || s.pool == o.pool || s.database == o.database ||
		slices.ContainsFunc(s.clients, func(c redis.UniversalClient) bool {
			return slices.ContainsFunc(o.clients, func(d redis.UniversalClient) bool { return sameClient(c, d) })
		})
}

// sameClient reports whether two clients are the same. Clients of a type that Go cannot compare, such as some wrappers,
// count as different.
func sameClient(a, b redis.UniversalClient) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
