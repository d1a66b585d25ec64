package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// Manager grants leases over one Redis: a single server, a primary behind Sentinel, or a cluster.
// It is safe for concurrent use and needs no closing: it has goroutines and a subscription only
// while leases are renewed or awaited. The client stays the caller's.
//
// Calls made at the same time over a *redis.Client travel together in pipelines. go-redis's hooks, such as a tracer,
// see those as pipelines under the context values of one of the calls; renewals, which travel likewise, have none.
type Manager struct {
	backend backend
	opts    Options
	keeper  *keeper
	wakeups *wakeups // nil over a quorum, where nobody is told
}

// NewManager makes a Manager on the caller's client. A nil client, a *redis.Ring (which would move
// resources between servers that know nothing of each other's counters) and options out of range
// are refused with ErrInvalid. It sends nothing.
func NewManager(client redis.UniversalClient, opts *Options) (*Manager, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	v := opts.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	if _, single := client.(*redis.Client); v.Durability.asked() && !single {
		return nil, invalidf("a Durability needs a *redis.Client, not a %T", client)
	}
	s := newScripts(client, v)
	return &Manager{backend: &s, opts: v, keeper: newKeeper(&s, v.clock), wakeups: newWakeups(client, v.Prefix)}, nil
}

// request is one attempt to acquire.
type request struct {
	ident
	nonce    token.Nonce
	label    string
	ttl      time.Duration
	every    time.Duration // 0: not renewed
	floor    token.Token
	waiter   string // in the queue as; "" where the caller does not wait
	maxHold  time.Duration
	progress time.Duration
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
	if o.MaxHold < 0 || o.ProgressEvery < 0 {
		return nil, invalidf("MaxHold %v or ProgressEvery %v is negative", o.MaxHold, o.ProgressEvery)
	}
	if o.Floor < 0 || o.Floor == token.Max {
		return nil, invalidf("no token lies above a floor of %d", int64(o.Floor))
	}
	return &request{
		ident: ident{resource: resource, keys: keysOf(m.opts.Prefix, resource)}, label: o.Label,
		ttl: ttl, every: o.RenewEvery, floor: o.Floor, maxHold: o.MaxHold, progress: o.ProgressEvery,
	}, nil
}

// attempt asks once, under a nonce of its own: a clean-up that arrives late must not remove what a
// later attempt was granted. It returns when ctx ends, whatever the client does.
func (m *Manager) attempt(ctx context.Context, r *request) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, interpret(ctx, "acquire", r.resource, err)
	}
	asked := *r
	asked.nonce = token.NewNonce()
	asked.secret = asked.nonce.Hex()
	// The deadline counts from before the call: go-redis may retry inside it, and the TTL runs
	// from whichever try reached the server.
	start := m.opts.clock.now()
	g, late, err := m.backend.sendAcquire(ctx, &asked).await(ctx)
	switch elapsed, _ := m.opts.clock.now().since(start); {
	case late != nil:
		m.backend.refresh()
		m.abandon(ctx, &asked, late)
		return nil, interpret(ctx, "acquire", r.resource, ctx.Err())
	case err != nil && mayHaveGranted(err):
		m.abandon(ctx, &asked, nil)
		return nil, err
	case err != nil:
		return nil, err
	case elapsed >= trusted(r.ttl):
		m.abandon(ctx, &asked, nil)
		return nil, &LostError{Resource: r.resource, Token: g.token, Reason: ReasonExpired}
	}
	return m.newLease(ctx, &asked, g, start), nil
}

// do runs a call to Redis and returns early when ctx ends: go-redis does not let a cancelled context
// interrupt a command under way. late is as with await.
func do[T any](ctx context.Context, call func() (T, error)) (value T, late func() error, err error) {
	if ctx.Done() == nil {
		value, err = call()
		return value, nil, err
	}
	return async(call).await(ctx)
}

// abandon removes what an attempt may have been granted without our knowing. underWay, where it is not nil, waits
// for what is still to come of it.
func (m *Manager) abandon(ctx context.Context, r *request, underWay func() error) {
	var err error
	wait := func() bool {
		err = underWay()
		return !errors.Is(err, errNotSent)
	}
	if underWay == nil {
		wait = nil
	}
	m.cleanUp(ctx, wait, func(detached context.Context) {
		if err == nil || mayHaveGranted(err) {
			m.remove(detached, r.ident)
		}
		// It may have taken a place again that the caller has given up. One who still waits keeps it.
		if underWay != nil && r.waiter != "" && !m.wakeups.waits(r.waiter) {
			m.giveUpPlace(detached, r.ident, r.waiter)
		}
	})
}

func (m *Manager) remove(ctx context.Context, id ident) {
	if _, err := m.backend.runRelease(ctx, id); err != nil {
		m.opts.Logger.Warn("lease may stay until its TTL ends", "resource", id.resource, "error", err)
	}
}

// cleanUpAfter removes the key of a lease that is over before its time.
func (m *Manager) cleanUpAfter(l *Lease) {
	m.cleanUp(context.Background(), nil, func(ctx context.Context) { m.remove(ctx, l.ident) })
}

// cleanUp runs what has to be done whether or not ctx has ended: work, if first, where there is one, finds that it is
// needed. It outlives ctx, within ReleaseTimeout, but does not keep the caller beyond it.
func (m *Manager) cleanUp(ctx context.Context, first func() bool, work func(detached context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if first != nil && !first() {
			return
		}
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.opts.ReleaseTimeout)
		defer cancel()
		work(detached)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
