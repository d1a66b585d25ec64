package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// Store grants leases that PostgreSQL enforces, and runs guarded work under them. It is safe for
// concurrent use. It opens no connection of its own and needs no closing: pool and client stay
// the caller's.
type Store struct {
	pool   *pgxpool.Pool
	locker locker
	opts   Options
	inOne  *inOne // of a store whose leases are transactions; nil otherwise
}

// locker grants permission to work on a resource; resources come without the namespace.
type locker interface {
	acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error)
	tryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error)
}

// hold is one grant of a locker.
type hold interface {
	Token() token.Token
	Nonce() token.Nonce
	Label() string
	Context() context.Context
	Err() error
	Remaining() time.Duration
	CounterWasAbsent() bool
	Reissue(ctx context.Context, fence token.Token) (token.Token, error)
	Release(ctx context.Context) error
}

// New makes a Store on the caller's pool and client. It sends nothing. What cannot work is refused
// with ErrInvalid: a nil pool or client, a *redis.Ring, options out of range.
//
// The database needs the migrations of package migrations, and the pool's user USAGE on the schema
// fencepost and EXECUTE on its functions.
func New(pool *pgxpool.Pool, client redis.UniversalClient, opts *Options) (*Store, error) {
	return newStore(pool, opts, func(o *lease.Options) (granter, error) { return lease.NewManager(client, o) })
}

// NewQuorum makes a Store whose leases are held by a majority of independent Redis servers, one client each: an
// odd number, at least three. There is no queue over a quorum. Otherwise it is like New.
func NewQuorum(pool *pgxpool.Pool, clients []redis.UniversalClient, opts *Options) (*Store, error) {
	return newStore(pool, opts, func(o *lease.Options) (granter, error) {
		return lease.NewQuorum(clients, &lease.QuorumOptions{Options: *o})
	})
}

func newStore(pool *pgxpool.Pool, opts *Options, leases func(*lease.Options) (granter, error)) (*Store, error) {
	v, err := checked(pool, opts)
	if err != nil {
		return nil, err
	}
	g, err := leases(&lease.Options{
		Prefix: "fencepost:" + v.Namespace, Label: v.Label, CounterIdle: v.CounterIdle,
		Logger: v.Logger, Hooks: hooks(v.Events), WallClock: v.WallClock,
	})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, locker: redisLocker{g}, opts: v}, nil
}

// checked resolves the settings of a store, and refuses those that cannot be.
func checked(pool *pgxpool.Pool, opts *Options) (Options, error) {
	if pool == nil {
		return Options{}, invalidf("the pool is nil")
	}
	v := opts.withDefaults()
	return v, v.validate()
}

func hooks(e Events) lease.Hooks {
	var h lease.Hooks
	if late := e.RenewedLate; late != nil {
		h.RenewalLate = func(l *lease.Lease, since time.Duration, err error) { late(l.Resource(), l.Token(), since, err) }
	}
	if lost := e.Lost; lost != nil {
		h.Lost = func(l *lease.Lease, cause *lease.LostError) { lost(l.Resource(), cause.Token, cause) }
	}
	return h
}

// granter is a *lease.Manager or a *lease.Quorum.
type granter interface {
	Acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (*lease.Lease, error)
	TryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (*lease.Lease, error)
}

type redisLocker struct{ granter granter }

func (r redisLocker) acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error) {
	return asHold(r.granter.Acquire(ctx, resource, ttl, opts))
}

func (r redisLocker) tryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error) {
	return asHold(r.granter.TryAcquire(ctx, resource, ttl, opts))
}

// asHold keeps a nil lease from becoming a hold that is not nil.
func asHold(l *lease.Lease, err error) (hold, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Acquire waits for the lease of a resource and claims its token in PostgreSQL. ctx bounds all of it,
// the wait for guarded transactions of the previous holder included; its end does not end the lease.
//
// A resource is 1 to 512 bytes of UTF-8 without U+0000, compared byte by byte.
//
// Errors: ErrInvalid before anything is sent; when ctx ends, the cause of that and ErrHeld or
// ErrUnavailable, whichever was met last; ErrUnavailable where PostgreSQL could not be asked, after a few tries; ErrBadKey; ErrLost when the claim took longer than the
// lease lasted; ErrTokenRegressed. After an error nothing is held.
func (s *Store) Acquire(ctx context.Context, resource string, opts *AcquireOptions) (*Lease, error) {
	return s.grant(ctx, resource, opts, s.locker.acquire)
}

// TryAcquire is Acquire without waiting for another holder: ErrHeld says that there is one. It still
// waits, until ctx ends, for guarded transactions under older tokens.
func (s *Store) TryAcquire(ctx context.Context, resource string, opts *AcquireOptions) (*Lease, error) {
	return s.grant(ctx, resource, opts, s.locker.tryAcquire)
}

type take func(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (hold, error)

func (s *Store) grant(ctx context.Context, resource string, opts *AcquireOptions, take take) (*Lease, error) {
	full, err := s.qualify(resource)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ttl, o := s.leaseOptions(opts)
	h, err := take(ctx, resource, ttl, o)
	if err != nil {
		return nil, err
	}
	l := newLease(s, resource, full, h)
	if err := s.claim(ctx, l); err != nil {
		if released := h.Release(ctx); released != nil && !errors.Is(released, ErrLost) {
			s.opts.Logger.Warn("lease without a claim not released", "resource", resource, "error", released)
		}
		return nil, err
	}
	s.acquired(l, time.Since(began))
	return l, nil
}

// qualify puts the namespace before a resource. A namespace has no colon, so the first colon ends
// it: different pairs give different texts.
func (s *Store) qualify(resource string) (string, error) {
	if resource == "" || len(resource) > lease.MaxResourceBytes {
		return "", invalidf("a resource has 1 to %d bytes, not %d", lease.MaxResourceBytes, len(resource))
	}
	full := s.opts.Namespace + ":" + resource
	return full, fence.Claim{Resource: full, Token: 1, Nonce: token.Nonce{1}}.Check()
}

// claimTries bounds how often a grant's token is lifted before the store gives up. One lift is
// enough unless somebody else moves the fence meanwhile.
const claimTries = 5

// claim raises the fence to the lease's token. Where the fence refuses it, or where it is unknown whether
// the claim was made, the lease is given a token just above and claims again.
func (s *Store) claim(ctx context.Context, l *Lease) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	if unnumbered, ok := l.hold.(advisoryHold); ok {
		return s.draw(ctx, l, unnumbered)
	}
	var last error
	for range claimTries {
		c := l.nextClaim()
		last = s.raise(ctx, l, c)
		at, refused := refusedAt(last)
		switch {
		case last == nil:
			l.setClaim(c)
			return l.Err() // a claim that came after the deadline is of no use
		case l.Err() != nil:
			return l.Err()
		case refused:
			s.regressed(l, c.Token, at)
		case errors.Is(last, ErrOutcomeUnknown) && ctx.Err() == nil:
			at = c.Token // claimed or not, the next token is above it
		case errors.Is(last, ErrUnavailable) && ctx.Err() == nil:
			continue // nothing was claimed: a connection of the pool may have been dead
		default:
			return unavailable(ctx, last)
		}
		if _, err := l.hold.Reissue(ctx, at); err != nil {
			return err
		}
	}
	if errors.Is(last, ErrUnavailable) || errors.Is(last, ErrOutcomeUnknown) {
		return unavailable(ctx, last)
	}
	return fmt.Errorf("%w: %q, after %d tries: %w", ErrTokenRegressed, l.resource, claimTries, last)
}

// raise sends one claim. The deadline is looked at once there is a connection to send it on.
func (s *Store) raise(ctx context.Context, l *Lease, c Claim) error {
	return s.claimOn(ctx, l, func(conn *pgx.Conn, o *fence.RaiseOptions) (Claim, error) { return c, fence.Raise(ctx, conn, c, o) })
}

// claimOn gives a claim its connection.
func (s *Store) claimOn(ctx context.Context, l *Lease, claim func(*pgx.Conn, *fence.RaiseOptions) (Claim, error)) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: claim: %w", ErrUnavailable, err)
	}
	defer conn.Release()
	if err := l.Err(); err != nil {
		return err
	}
	began := time.Now()
	c, err := claim(conn.Conn(), &fence.RaiseOptions{Label: l.hold.Label()})
	s.claimWait(l, c.Token, time.Since(began))
	return err
}

// refusedAt returns what the fence carries, where it refused a claim.
func refusedAt(err error) (token.Token, bool) {
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		return stale.Current, true
	}
	var jump *fence.JumpError
	if errors.As(err, &jump) {
		return jump.Current, true
	}
	return 0, false
}

// unavailable says of an acquire whose claim did not come about that nothing was acquired, whatever
// became of the claim: a fence that is raised for nobody does no harm.
func unavailable(ctx context.Context, err error) error {
	if errors.Is(err, ErrOutcomeUnknown) {
		return errors.Join(fmt.Errorf("%w: claim: %v", ErrUnavailable, err), ctx.Err()) //nolint:errorlint // its match is left out on purpose
	}
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
