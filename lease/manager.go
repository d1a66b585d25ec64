package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// Manager grants leases over one Redis: a single server, a primary behind Sentinel, or a cluster.
// It is safe for concurrent use, starts no goroutine of its own, and needs no closing; the client
// stays the caller's.
type Manager struct {
	scripts scripts
	opts    Options
}

// NewManager makes a Manager on the caller's client. A nil client, a *redis.Ring (which would move
// resources between servers that know nothing of each other's counters) and options out of range
// are refused with ErrInvalid. It sends nothing.
func NewManager(client redis.UniversalClient, opts *Options) (*Manager, error) {
	switch client.(type) {
	case nil:
		return nil, invalidf("the redis client is nil")
	case *redis.Ring:
		return nil, invalidf("a redis.Ring cannot hold leases: its counters do not follow their resources")
	}
	v := opts.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	return &Manager{scripts: newScripts(client), opts: v}, nil
}

// request is one attempt to acquire.
type request struct {
	resource string
	keys     keys
	nonce    token.Nonce
	label    string
	ttl      time.Duration
	every    time.Duration // 0: not renewed
	floor    token.Token
}

// TryAcquire asks for the lease of a resource once, for the given TTL. ctx bounds the call and
// gives the lease's context its values; its end does not end the lease.
//
// Errors: ErrInvalid before anything is sent; *HeldError when somebody else holds it; ErrBadKey;
// ErrUnavailable, after which what may have been granted has been removed, if Redis could be
// reached; ErrLost when the grant came too late to be used.
func (m *Manager) TryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *AcquireOptions) (*Lease, error) {
	r, err := m.request(resource, ttl, opts)
	if err != nil {
		return nil, err
	}
	return m.attempt(ctx, r)
}

// Acquire is TryAcquire repeated, with pauses, until the lease is free or ctx ends. It keeps trying
// while Redis is unavailable. When ctx ends, the error matches the cause of that and the last
// outcome: ErrHeld or ErrUnavailable.
func (m *Manager) Acquire(ctx context.Context, resource string, ttl time.Duration, opts *AcquireOptions) (*Lease, error) {
	r, err := m.request(resource, ttl, opts)
	if err != nil {
		return nil, err
	}
	for {
		l, err := m.attempt(ctx, r)
		if err == nil || errors.Is(err, ErrBadKey) {
			return l, err
		}
		if ended := m.pause(ctx, err); ended != nil {
			return nil, ended
		}
	}
}

func (m *Manager) request(resource string, ttl time.Duration, opts *AcquireOptions) (*request, error) {
	var o AcquireOptions
	if opts != nil {
		o = *opts
	}
	if o.Label == "" {
		o.Label = m.opts.Label
	}
	if o.RenewEvery == 0 {
		o.RenewEvery = ttl / 3
	}
	if err := errors.Join(checkResource(resource), checkTTL(ttl), checkLabel(o.Label)); err != nil {
		return nil, err
	}
	if o.NoRenewal {
		o.RenewEvery = 0
	} else if err := checkRenewal(ttl, o.RenewEvery); err != nil {
		return nil, err
	}
	if o.Floor < 0 || o.Floor == token.Max {
		return nil, invalidf("no token lies above a floor of %d", int64(o.Floor))
	}
	return &request{
		resource: resource, keys: keysOf(m.opts.Prefix, resource), label: o.Label,
		ttl: ttl, every: o.RenewEvery, floor: o.Floor,
	}, nil
}

// attempt asks once, under a nonce of its own: a clean-up that arrives late must not remove what a
// later attempt was granted.
func (m *Manager) attempt(ctx context.Context, r *request) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, interpret(ctx, "acquire", r.resource, err)
	}
	r.nonce = token.NewNonce()
	// The deadline counts from before the call: go-redis may retry inside it, and the TTL runs
	// from whichever try reached the server.
	start := m.opts.clock.now()
	g, err := m.scripts.runAcquire(ctx, r, m.opts.CounterIdle)
	if err != nil {
		if mayHaveGranted(err) {
			m.abandon(ctx, r)
		}
		return nil, err
	}
	if elapsed, _ := m.opts.clock.now().since(start); elapsed >= trusted(r.ttl) {
		m.abandon(ctx, r)
		return nil, &LostError{Resource: r.resource, Token: g.token, Reason: ReasonExpired}
	}
	return m.newLease(ctx, r, g, start), nil
}

// abandon removes what an attempt may have been granted without our knowing. It outlives ctx,
// within ReleaseTimeout, but does not keep the caller beyond ctx.
func (m *Manager) abandon(ctx context.Context, r *request) {
	resource, k, nonce := r.resource, r.keys, r.nonce
	done := make(chan struct{})
	go func() {
		defer close(done)
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.opts.ReleaseTimeout)
		defer cancel()
		if _, err := m.scripts.runRelease(detached, resource, k, nonce); err != nil {
			m.opts.Logger.Warn("lease may stay until its TTL ends", "resource", resource, "error", err)
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// pause waits before the next try. It returns an error, made of the last outcome and of why ctx
// ended, when there is to be none.
func (m *Manager) pause(ctx context.Context, last error) error {
	wait := time.Duration(float64(m.opts.PollEvery) * (0.5 + rand.Float64()))
	var held *HeldError
	if errors.As(last, &held) && held.TTL < wait {
		wait = held.TTL + time.Millisecond
	}
	wake := make(chan struct{})
	t := m.opts.clock.afterFunc(wait, func() { close(wake) })
	defer t.Stop()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		if errors.Is(last, ctx.Err()) {
			return last
		}
		return errors.Join(last, context.Cause(ctx), ctx.Err())
	}
}
