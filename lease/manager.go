package lease

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/token"
)

// Manager grants leases over one Redis: a single server, a primary behind Sentinel, or a cluster. It is safe for
// concurrent use and need not be closed: it has goroutines and a subscription only while leases are renewed or awaited.
// The caller keeps ownership of the client.
//
// Concurrent calls over a *redis.Client travel together in pipelines. Hooks of go-redis, such as a tracer, see them as
// pipelines under the context values of one of the calls. Renewals also travel in pipelines, without context values.
// go-redis has no hooks for what a subscription sends.
type Manager struct {
	backend    backend
	opts       Options
	keeper     *keeper
	subscriber *subscriber // nil over a quorum, which notifies nobody
}

// NewManager makes a Manager on the caller's client. It sends nothing. It refuses with ErrInvalid a nil client, options
// out of range, and a *redis.Ring, which would move resources between servers that do not share their counters.
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
	return &Manager{backend: s, opts: v, keeper: newKeeper(s, v.clock), subscriber: newSubscriber(client, v.Prefix)}, nil
}

// checkClient refuses clients that cannot hold leases. A nil pointer in the interface is a nil client too.
func checkClient(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return invalidf("the redis client is nil")
	}
	if _, ring := client.(*redis.Ring); ring {
		return invalidf("a redis.Ring cannot hold leases: its counters do not follow their resources")
	}
	return nil
}

// request is one attempt to acquire.
type request struct {
	ident
	nonce       token.Nonce
	label       string
	ttl         time.Duration
	within      time.Duration   // of one attempt; 0: only ctx bounds it
	detached    context.Context //nolint:containedctx // the caller's without its end
	every       time.Duration   // 0: not renewed
	floor       token.Token
	waiter      string   // its name in the queue; "" if the caller does not wait
	position    position // as the last attempt found it
	anchor      anchor   // of a waiter, from its last answered attempt
	waiterNonce token.Nonce
	holds       *atomic.Bool // of a waiter: its call has returned with the lease that was granted in its name
	maxHold     time.Duration
	progress    time.Duration
}

// TryAcquire asks for the lease of a resource once, for the given TTL. ctx bounds the call and supplies the values of
// the lease's context; the end of ctx does not end the lease.
//
// Errors: ErrInvalid before anything is sent; *HeldError if somebody else holds the lease; ErrBadKey; ErrUnavailable,
// after which anything that may have been granted has been removed, if Redis could be reached; ErrLost if the grant
// came too late to be used.
func (m *Manager) TryAcquire(
	ctx context.Context,
	resource string,
	ttl time.Duration,
	opts *AcquireOptions,
) (*Lease, error) {
	r, err := m.request(resource, ttl, opts)
	if err != nil {
		return nil, err
	}
	return m.attempt(ctx, &r)
}

func (m *Manager) request(resource string, ttl time.Duration, opts *AcquireOptions) (request, error) {
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
		return request{}, err
	}
	if o.NoRenewal {
		o.RenewEvery = 0
	} else if err := checkRenewal(ttl, o.RenewEvery); err != nil {
		return request{}, err
	}
	if o.MaxHold < 0 || o.ProgressEvery < 0 {
		return request{}, invalidf("MaxHold %v or ProgressEvery %v is negative", o.MaxHold, o.ProgressEvery)
	}
	if o.Floor < 0 || o.Floor == token.Max {
		return request{}, invalidf("no token lies above a floor of %d", int64(o.Floor))
	}
	return request{
		ident: ident{resource: resource, keys: keysOf(m.opts.Prefix, resource)}, label: o.Label,
		ttl: ttl, every: o.RenewEvery, floor: o.Floor, maxHold: o.MaxHold, progress: o.ProgressEvery,
	}, nil
}

// attempt asks once, under a nonce of its own, so that a late clean-up cannot remove what a later attempt was granted.
// It returns when ctx ends or r.within has passed, whatever the client does.
func (m *Manager) attempt(ctx context.Context, r *request) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, interpret(ctx, "acquire", r.resource, err)
	}
	asked := r.withNonce(ctx)
	// The deadline counts from before the call: go-redis may retry inside it, and the TTL runs from the try that
	// reached the server.
	start := m.opts.clock.now()
	began := time.Now()
	g, pending, err := m.backend.acquire(ctx, asked)
	r.noted(g.position, start)
	if r.within > 0 && (pending != nil || err != nil) { // it bounds the clean-up too
		left := r.within - time.Since(began)
		if pending != nil {
			left = 0
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	return m.outcome(ctx, asked, start, g, pending, err)
}

// withNonce returns a copy of the request with a new nonce, for an attempt under ctx.
func (r *request) withNonce(ctx context.Context) *request {
	asked := *r
	asked.detached = detach(ctx)
	asked.drawNonce()
	return &asked
}

// drawNonce gives the request a nonce.
func (r *request) drawNonce() {
	r.nonce = token.NewNonce()
	r.secret = r.nonce.Hex()
}

// outcome makes a lease of the answer to an attempt that began at start, or cleans up after it.
func (m *Manager) outcome(
	ctx context.Context, asked *request, start clock.Instant, g grant, pending func() error, err error,
) (*Lease, error) {
	if g.yours {
		asked.nonce, asked.secret = asked.waiterNonce, asked.waiter[:32]
	}
	switch elapsed, _ := m.opts.clock.now().Since(start); {
	case pending != nil:
		m.backend.refresh()
		m.abandon(ctx, asked, pending)
		return nil, interpret(ctx, "acquire", asked.resource, ctx.Err())
	case err != nil && mayHaveGranted(err):
		m.abandon(ctx, asked, nil)
		return nil, err
	case err != nil:
		return nil, err
	case elapsed >= trusted(asked.ttl):
		m.abandon(ctx, asked, nil)
		return nil, &LostError{Resource: asked.resource, Token: g.token, Reason: ReasonExpired}
	}
	return m.keep(m.makeLease(asked, g, start)), nil
}

// noted keeps the place for the next attempt. Redis may have to be reminded of it: Redis forgets a waiter whose
// subscription was cut when a lease was handed on, and forgets all waiters when it loses its data.
func (r *request) noted(where position, sent clock.Instant) {
	if where.server != nil {
		r.anchor = anchor{sent: sent, at: where.time, server: *where.server}
	}
	if where.place == "" {
		where.place = r.position.place
	}
	r.position = where
}

// do runs a call to Redis and returns early when ctx ends: go-redis does not let a cancelled context interrupt a
// command in flight. pending is as in await.
func do[T any](ctx context.Context, call func() (T, error)) (value T, pending func() error, err error) {
	if ctx.Done() == nil {
		value, err = call()
		return value, nil, err
	}
	return async(call).await(ctx, 0)
}

// abandon removes what an attempt may have been granted without our knowledge. underWay, if not nil, waits for the rest
// of the attempt.
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
		// The attempt may have retaken a place that the caller gave up. A caller that still waits keeps its place.
		if underWay != nil && r.waiter != "" && !m.subscriber.waits(r.waiter) {
			m.giveUpPlace(detached, r.ident, r.waiter, r.holds.Load())
		}
	})
}

func (m *Manager) remove(ctx context.Context, id ident) {
	if _, err := m.backend.runRelease(ctx, id); err != nil {
		m.opts.Logger.Warn("lease may stay until its TTL ends", "resource", id.resource, "error", err)
	}
}

// cleanUpAfter removes the key of a lease that ended early.
func (m *Manager) cleanUpAfter(l *Lease) {
	m.cleanUp(context.Background(), nil, func(ctx context.Context) { m.remove(ctx, l.ident) })
}

// cleanUp runs work whether or not ctx has ended. If first is not nil, work runs only if first returns true. cleanUp
// outlives ctx, within ReleaseTimeout, but does not block the caller beyond the end of ctx.
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
