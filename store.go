package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// Store grants leases that PostgreSQL enforces, and runs guarded work under them. It is safe for concurrent use. It
// opens no connection of its own and does not need to be closed: the pool and the client still belong to the caller.
type Store struct {
	pool     *pgxpool.Pool
	locker   locker
	opts     Options
	database string                  // the pool's host, port and database
	clients  []redis.UniversalClient // of the Redis servers that hold the leases
	bounds   lossBounds

	// commitsSimply is true once a function has deallocated the prepared statements that commit its transaction.
	commitsSimply atomic.Bool
}

// locker grants permission to work on a resource. Its resources are without the namespace.
type locker interface {
	acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (grant, error)
	tryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (grant, error)
}

// grant is what a locker returns: a hold that lasts until its release or its end. Its token has not been claimed in
// PostgreSQL.
type grant interface {
	hold
	// claim claims a token for l, the lease of this grant, and sets it there. ctx ends with the lease.
	claim(ctx context.Context, l *Lease, terms claimTerms) error
	Remaining() time.Duration
	Progress()
	Renew(ctx context.Context, ttl time.Duration) error
	// numberAbove makes the next grant of the resource get a number above a token, if something other than the fence
	// counts.
	numberAbove(ctx context.Context, tok token.Token) error
	Release(ctx context.Context) error
}

// hold is what a lease rests on: a grant, or the transaction of an AdvisoryTx.
type hold interface {
	Nonce() token.Nonce
	Label() string
	Context() context.Context
	Err() error
	Abandon(reason lease.Reason, err error)
}

// New returns a Store on the caller's pool and client. It sends nothing. It returns ErrInvalid for a nil pool or
// client, for a *redis.Ring, and for options out of range.
//
// The database needs the migrations of package migrations, and the pool's user USAGE on the schema
// fencepost and EXECUTE on its functions.
func New(pool *pgxpool.Pool, client redis.UniversalClient, opts *Options) (*Store, error) {
	return newStore(pool, []redis.UniversalClient{client}, opts, func(o *lease.Options) (granter, error) {
		return lease.NewManager(client, o)
	})
}

// NewQuorum returns a Store whose leases are held by a majority of independent Redis servers. It takes one client for
// each server; their number is odd and at least three. Waiters over a quorum have no queue. Otherwise it is like New.
func NewQuorum(pool *pgxpool.Pool, clients []redis.UniversalClient, opts *Options) (*Store, error) {
	return newStore(pool, clients, opts, func(o *lease.Options) (granter, error) {
		return lease.NewQuorum(clients, &lease.QuorumOptions{Options: *o})
	})
}

func newStore(
	pool *pgxpool.Pool,
	clients []redis.UniversalClient,
	opts *Options,
	leases func(*lease.Options) (granter, error),
) (*Store, error) {
	s, err := checked(pool, opts)
	if err != nil {
		return nil, err
	}
	g, err := leases(&lease.Options{
		Prefix: "fencepost:" + s.opts.Namespace, Label: s.opts.Label, CounterIdle: s.opts.CounterIdle,
		PollEvery: s.opts.PollEvery, NoQueue: s.opts.NoQueue, Durability: s.opts.Durability,
		Logger: s.opts.Logger, Hooks: s.hooks(), WallClock: s.opts.WallClock,
	})
	if err != nil {
		return nil, err
	}
	s.locker, s.clients = redisLocker{g}, slices.Clone(clients)
	return s, nil
}

// checked returns a store without a locker. It refuses invalid settings.
func checked(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if pool == nil {
		return nil, invalidf("the pool is nil")
	}
	v := opts.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	c := pool.Config().ConnConfig
	return &Store{pool: pool, opts: v, database: fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database)}, nil
}

// granter is a *lease.Manager or a *lease.Quorum.
type granter interface {
	Acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (*lease.Lease, error)
	TryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (*lease.Lease, error)
	TryAcquireAll(
		ctx context.Context, resources []string, ttl time.Duration, opts *lease.AcquireOptions,
	) ([]*lease.Lease, []error)
}

type redisLocker struct{ granter granter }

func (r redisLocker) acquire(
	ctx context.Context,
	resource string,
	ttl time.Duration,
	opts *lease.AcquireOptions,
) (grant, error) {
	return asGrant(r.granter.Acquire(ctx, resource, ttl, opts))
}

func (r redisLocker) tryAcquire(
	ctx context.Context,
	resource string,
	ttl time.Duration,
	opts *lease.AcquireOptions,
) (grant, error) {
	return asGrant(r.granter.TryAcquire(ctx, resource, ttl, opts))
}

func (r redisLocker) tryAcquireAll(
	ctx context.Context, resources []string, ttl time.Duration, opts *lease.AcquireOptions,
) ([]redisGrant, []error) {
	leases, errs := r.granter.TryAcquireAll(ctx, resources, ttl, opts)
	grants := make([]redisGrant, len(leases))
	for i, l := range leases {
		grants[i] = redisGrant{l}
	}
	return grants, errs
}

func asGrant(l *lease.Lease, err error) (grant, error) {
	if err != nil {
		return nil, err
	}
	return redisGrant{l}, nil
}

// Acquire waits for the lease of a resource and claims its token in PostgreSQL. ctx bounds the whole call, including
// the wait for guarded transactions of the previous holder. The lease outlives ctx.
//
// A resource is 1 to 512 bytes of UTF-8 without U+0000, compared byte by byte.
//
// After an error nothing is held. The errors are:
//   - ErrInvalid: nothing was sent.
//   - ErrHeldByCaller: ctx shows that the caller itself holds the lease, through this store or one that shares its
//     database or its Redis client. Nothing was sent.
//   - ErrHeld (a *HeldError): another holder has the lease. With AcquireOptions.NoWait the error is returned at once.
//     Otherwise it is returned when ctx ends, and then also matches the reason why ctx ended.
//   - ErrHeld (a *FenceBusyError): nobody holds the lease, but transactions of an earlier holder are still open. The
//     error is returned after AcquireOptions.ClaimWait, or when ctx reaches its deadline.
//   - ErrUnavailable: Redis did not answer before ctx ended, or PostgreSQL did not answer after a few tries.
//   - ErrBadKey: a Redis key of the lease holds something that this library did not write.
//   - ErrLost: the claim took longer than the lease lasted.
//   - ErrTokenRegressed: the fence refused the lease's tokens, after a few tries to lift them.
func (s *Store) Acquire(ctx context.Context, resource string, opts *AcquireOptions) (*Lease, error) {
	return s.grant(ctx, resource, opts, s.taking(opts))
}

// TryAcquire is Acquire with AcquireOptions.NoWait: ErrHeld means that there is another holder. It still waits for
// guarded transactions under older tokens, until ctx ends or for AcquireOptions.ClaimWait.
func (s *Store) TryAcquire(ctx context.Context, resource string, opts *AcquireOptions) (*Lease, error) {
	return s.grant(ctx, resource, opts, s.locker.tryAcquire)
}

// taking returns the function with which an acquire takes the lease.
func (s *Store) taking(opts *AcquireOptions) take {
	if opts.noWait() {
		return s.locker.tryAcquire
	}
	return s.locker.acquire
}

type take func(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (grant, error)

func (s *Store) grant(ctx context.Context, resource string, opts *AcquireOptions, take take) (*Lease, error) {
	full, err := s.qualify(resource)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(opts.check(), s.checkHeld(ctx, resource, full)); err != nil {
		return nil, err
	}
	began := time.Now()
	l, err := s.obtain(ctx, resource, full, opts, take)
	if err != nil {
		s.refusedAcquire(ctx, resource, time.Since(began), err)
		return nil, err
	}
	s.acquired(ctx, l, time.Since(began))
	return l, nil
}

// obtain takes a lease and claims its token. After an error nothing is held.
func (s *Store) obtain(ctx context.Context, resource, full string, opts *AcquireOptions, take take) (*Lease, error) {
	l, h, err := s.take(ctx, resource, full, opts, take)
	if err != nil {
		return nil, err
	}
	if err := s.claim(ctx, l, h, claimTerms{until: opts.claimUntil()}); err != nil {
		s.releaseUnclaimed(ctx, l)
		return nil, err
	}
	_ = l.heldFor.begin()
	return l, nil
}

// take takes a lease whose token has not been claimed.
func (s *Store) take(
	ctx context.Context, resource, full string, opts *AcquireOptions, take take,
) (*Lease, grant, error) {
	ttl, o := s.leaseOptions(opts)
	h, err := take(ctx, resource, ttl, o)
	if err != nil {
		return nil, nil, err
	}
	return newGrantedLease(s, resource, full, h), h, nil
}

// releaseUnclaimed releases a lease whose token could not be claimed.
func (s *Store) releaseUnclaimed(ctx context.Context, l *Lease) {
	if err := l.grant.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		s.opts.Logger.Warn("lease without a claim not released", "resource", l.resource, "error", err)
	}
}

// FullName returns a resource's name with the store's namespace before it. The resource's fence has this name, the SQL
// functions fencepost.enter and fencepost.claim take it, and claim values carry it. FullName sends nothing. It returns
// ErrInvalid for a name that no resource can have.
func (s *Store) FullName(resource string) (string, error) { return s.qualify(resource) }

// qualify puts the namespace before a resource. A namespace has no colon, so the first colon ends it, and different
// pairs give different names.
func (s *Store) qualify(resource string) (string, error) {
	if resource == "" || len(resource) > lease.MaxResourceBytes {
		return "", invalidf("a resource has 1 to %d bytes, not %d", lease.MaxResourceBytes, len(resource))
	}
	full := s.qualified(resource)
	return full, fence.Claim{Resource: full, Token: 1, Nonce: token.Nonce{1}}.Check()
}

// qualified is qualify for a resource that it has accepted.
func (s *Store) qualified(resource string) string { return s.opts.Namespace + ":" + resource }
