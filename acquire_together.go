package fencepost

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/lease"
)

// acquiring is one call that acquires several leases, in the order of their names.
//
// Invariant: while it waits for a lease, it holds only leases before it.
type acquiring struct {
	store  *Store
	opts   *AcquireOptions
	add    func(*Lease) // bounds the call by a lease
	leases []*Lease     // acquired and claimed

	claimLater bool // leave the claims to the caller if all leases are free at once
	unclaimed  bool // that was so

	most int // how many to ask for next, so that what is given back stays in proportion to what is kept; 0: all
}

// togetherLocker is a locker that asks for several resources at once, and does not wait. grants[i] is nil if errs[i] is
// not.
type togetherLocker interface {
	tryAcquireAll(
		ctx context.Context, resources []string, ttl time.Duration, opts *lease.AcquireOptions,
	) (grants []redisGrant, errs []error)
}

// longestTogether bounds one request for several leases. After it, the leases are asked for one by one, which outlives
// a server that does not answer.
const longestTogether = 2 * time.Second

// next acquires the leases of the next resources: all that are free before the first that is not, or else that one. It
// adds at least one lease, or returns an error.
func (a *acquiring) next(ctx context.Context, rest []string) error {
	together, ok := a.store.locker.(togetherLocker)
	if !ok || len(rest) == 1 {
		return a.one(ctx, rest[0])
	}
	began := time.Now()
	if a.most > 0 {
		rest = rest[:min(a.most, len(rest))]
	}
	grants, first, err := a.free(ctx, together, rest)
	a.most = 2 * max(1, len(grants))
	added := make([]*Lease, 0, len(grants))
	for i, g := range grants {
		full, _ := a.store.qualify(rest[i]) // valid: see sortedNames
		l := newGrantedLease(a.store, rest[i], full, g)
		added = append(added, l)
		a.add(l) // once this one is lost, waiting for the rest is pointless
	}
	a.unclaimed = a.claimLater && err == nil && len(a.leases) == 0
	a.leases = append(a.leases, added...)
	if a.unclaimed {
		return nil
	}
	if err := a.store.claimAll(ctx, added, a.opts, began); err != nil {
		return err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrInvalid) || a.opts.noWait() && errors.Is(err, ErrHeld) || ctx.Err() != nil:
		return a.refused(ctx, first, began, err)
	}
	return a.one(ctx, first)
}

// one acquires one lease by itself, and waits for it unless the options say otherwise.
func (a *acquiring) one(ctx context.Context, resource string) error {
	l, err := a.store.Acquire(ctx, resource, a.opts)
	if err != nil {
		return err
	}
	a.leases = append(a.leases, l)
	a.add(l)
	return nil
}

func (a *acquiring) refused(ctx context.Context, resource string, began time.Time, err error) error {
	a.store.refusedAcquire(ctx, resource, time.Since(began), err)
	return err
}

// free asks for all resources and keeps the grants before the first that was refused. If there is one, it returns the
// resource, and why.
func (a *acquiring) free(
	ctx context.Context, together togetherLocker, rest []string,
) (grants []redisGrant, first string, err error) {
	ttl, o := a.store.leaseOptions(a.opts)
	short, cancel := context.WithTimeout(ctx, longestTogether)
	defer cancel()
	grants, errs := together.tryAcquireAll(short, rest, ttl, o)
	for i := range errs {
		if errs[i] != nil {
			giveBackGrants(ctx, a.store, grants[i:])
			return grants[:i], rest[i], errs[i]
		}
	}
	return grants, "", nil
}

// giveBackGrants releases grants that have no claim.
func giveBackGrants(ctx context.Context, s *Store, grants []redisGrant) {
	var leases []*lease.Lease
	for _, g := range grants {
		if g.Lease != nil {
			leases = append(leases, g.Lease)
		}
	}
	for i, err := range lease.ReleaseAll(ctx, leases) {
		if err != nil && !errors.Is(err, ErrLost) {
			s.opts.Logger.Warn("lease without a claim not released", "resource", leases[i].Resource(), "error", err)
		}
	}
}

// claimAll claims the tokens of leases that have just been granted, in as few statements as possible, and reports the
// leases. What these cannot claim is claimed one by one: a resource that other transactions have entered, a token that
// its fence refused, and everything if PostgreSQL did not answer. began is when their acquire did. ctx ends with the
// leases.
func (s *Store) claimAll(ctx context.Context, leases []*Lease, opts *AcquireOptions, began time.Time) error {
	terms := claimTerms{until: opts.claimUntil()}
	for from := 0; from < len(leases); from += pgclaim.MaxTogether {
		together := leases[from:min(from+pgclaim.MaxTogether, len(leases))]
		claimed := s.raiseTogether(ctx, together)
		for i, l := range together {
			err := l.Err() // a claim after the deadline is useless
			if claimed == nil || !claimed[i] {
				err = s.claim(ctx, l, l.grant, terms)
			}
			if err != nil {
				s.refusedAcquire(ctx, l.resource, time.Since(began), err)
				return err
			}
		}
	}
	s.acquiredAll(ctx, leases, began)
	return nil
}

func (s *Store) acquiredAll(ctx context.Context, leases []*Lease, began time.Time) {
	for _, l := range leases {
		if l.heldFor.begin() {
			s.acquired(ctx, l, time.Since(began))
		}
	}
}

// raiseTogether sends several claims in one transaction, and reports which of them were made. It returns nil if that is
// unknown for all.
func (s *Store) raiseTogether(ctx context.Context, leases []*Lease) (claimed []bool) {
	claims, ok := grantedClaims(leases)
	if !ok || len(leases) < 2 {
		return nil
	}
	began := time.Now()
	raised, err := s.raiseOnPool(ctx, leases, claims)
	if err != nil {
		return nil
	}
	claimed = make([]bool, len(leases))
	for i, l := range leases {
		if claimed[i] = raised[i].Claimed; claimed[i] {
			l.setClaim(claims[i])
			s.claimWait(ctx, l, claims[i].Token, time.Since(began))()
		}
	}
	return claimed
}

// raiseOnPool checks the deadlines once it has a connection.
func (s *Store) raiseOnPool(ctx context.Context, leases []*Lease, claims []Claim) ([]pgclaim.Raised, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	if err := over(leases); err != nil {
		return nil, err
	}
	raised, err := pgclaim.RaiseAll(ctx, conn.Conn(), claims, leases[0].hold.Label())
	fence.Discard(conn.Conn(), err)
	return raised, err
}

// grantedClaims returns the claims of leases that Redis has granted, each with its grant's number.
func grantedClaims(leases []*Lease) (claims []Claim, ok bool) {
	claims = make([]Claim, len(leases))
	for i, l := range leases {
		g, ok := l.grant.(redisGrant)
		if !ok {
			return nil, false
		}
		l.counterWasAbsent = g.CounterWasAbsent()
		claims[i] = Claim{Resource: l.full, Token: g.Token(), Nonce: g.Nonce()}
	}
	return claims, true
}
