package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// byHand is for leases that must not be renewed without the check's knowledge.
func byHand(floor token.Token) *lease.AcquireOptions {
	return &lease.AcquireOptions{NoRenewal: true, Floor: floor}
}

// grant goes through the life of a lease, while another manager watches.
func (k *keyspace) grant(ctx context.Context) error {
	m, other, err := k.two()
	if err != nil {
		return err
	}
	name := k.resource("grant")
	l, err := m.TryAcquire(ctx, name, time.Minute, byHand(0))
	if err != nil {
		return err
	}
	if err := k.refused(ctx, other, name, time.Minute); err != nil {
		return err
	}
	if err := l.Renew(ctx, 2*time.Minute); err != nil {
		return err
	}
	reissued, err := l.Reissue(ctx, 100)
	switch {
	case err != nil:
		return err
	case reissued != 101:
		return fmt.Errorf("a token to be just above 100 is %d", reissued)
	}
	if err := k.refused(
		ctx,
		other,
		name,
		2*time.Minute,
	); err != nil { // the TTL has been renewed, and outlived the reissue
		return err
	}
	if err := l.Release(ctx); err != nil {
		return err
	}
	next, err := other.TryAcquire(ctx, name, time.Minute, byHand(0))
	if err != nil {
		return fmt.Errorf("after the release: %w", err)
	}
	if next.Token() != 102 {
		return fmt.Errorf("the token after 101 is %d", next.Token())
	}
	return next.Release(ctx)
}

// together asks for several leases at once, one of which another manager holds, and gives back what it got.
func (k *keyspace) together(ctx context.Context) error {
	m, other, err := k.two()
	if err != nil {
		return err
	}
	names := []string{k.resource("together-1"), k.resource("together-2"), k.resource("together-3")}
	taken, err := other.TryAcquire(ctx, names[1], time.Minute, byHand(0))
	if err != nil {
		return err
	}
	got, errs := m.TryAcquireAll(ctx, names, time.Minute, byHand(0))
	if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], lease.ErrHeld) {
		_ = lease.ReleaseAll(ctx, got) // the answers were wrong already
		return fmt.Errorf("of three leases, one of which is held: %w", orNil(errors.Join(errs...)))
	}
	if err := errors.Join(lease.ReleaseAll(ctx, got)...); err != nil {
		return err
	}
	if err := taken.Release(ctx); err != nil {
		return err
	}
	again, errs := other.TryAcquireAll(ctx, names, time.Minute, byHand(0))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("after they were given back: %w", err)
	}
	for i, l := range again {
		if l.Token() != 2 {
			return fmt.Errorf("the second token of lease %d is %d", i+1, l.Token())
		}
	}
	return errors.Join(lease.ReleaseAll(ctx, again)...)
}

func (k *keyspace) two() (a, b *lease.Manager, err error) {
	if a, err = k.manager(lease.Options{}); err == nil {
		b, err = k.manager(lease.Options{})
	}
	return a, b, err
}

// refused asks for a lease that another manager holds, for about the TTL.
func (k *keyspace) refused(ctx context.Context, m *lease.Manager, name string, ttl time.Duration) error {
	l, err := m.TryAcquire(ctx, name, time.Minute, byHand(0))
	var held *lease.HeldError
	switch {
	case err == nil:
		_ = l.Release(ctx)
		return errors.New("a lease that is held was granted to another")
	case !errors.As(err, &held):
		return err
	case held.TTL > ttl || held.TTL < ttl-checkPatience:
		return fmt.Errorf("a lease of %v has %v left", ttl, held.TTL)
	}
	return nil
}

// exclusive lets many managers hold a lease one after the other.
func (k *keyspace) exclusive(ctx context.Context) error {
	const managers, each = 8, 10
	name := k.resource("exclusive")
	holders := &holders{tokens: make(map[token.Token]bool)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for range managers {
		m, err := k.manager(lease.Options{})
		if err != nil {
			return err
		}
		all.Go(func() {
			for range each {
				if err := holders.one(ctx, m, name); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// holders counts how many hold a lease, and records under which tokens.
type holders struct {
	now    atomic.Int32
	mu     sync.Mutex
	tokens map[token.Token]bool
}

// one acquires and releases.
func (h *holders) one(ctx context.Context, m *lease.Manager, name string) error {
	l, err := m.Acquire(ctx, name, time.Minute, byHand(0))
	if err != nil {
		return err
	}
	if n := h.now.Add(1); n != 1 {
		return fmt.Errorf("%d hold one lease", n)
	}
	h.mu.Lock()
	twice := h.tokens[l.Token()]
	h.tokens[l.Token()] = true
	h.mu.Unlock()
	if twice {
		return fmt.Errorf("token %d was given twice", l.Token())
	}
	h.now.Add(-1)
	return l.Release(ctx)
}

// expiry lets one manager's lease run out while another manager waits for it.
func (k *keyspace) expiry(ctx context.Context) error {
	const ttl = 400 * time.Millisecond
	m, other, err := k.two()
	if err != nil {
		return err
	}
	name := k.resource("expiry")
	began := time.Now()
	if _, err := m.TryAcquire(ctx, name, ttl, byHand(0)); err != nil {
		return err
	}
	got, err := other.Acquire(ctx, name, time.Minute, byHand(0))
	if err != nil {
		return fmt.Errorf("after the TTL: %w", err)
	}
	took := time.Since(began)
	if err := got.Release(ctx); err != nil {
		return err
	}
	if took < ttl-2*time.Millisecond {
		return fmt.Errorf("a lease of %v was granted to another after %v", ttl, took)
	}
	return nil
}

// counter tries numbers at which floating-point arithmetic is inexact, and the last number.
func (k *keyspace) counter(ctx context.Context) error {
	m, _, err := k.two()
	if err != nil {
		return err
	}
	name := k.resource("counter")
	for _, floor := range []token.Token{1<<53 - 1, 1<<53 + 1, token.Max - 1} {
		l, err := m.TryAcquire(ctx, name, time.Minute, byHand(floor))
		if err != nil {
			return fmt.Errorf("above %d: %w", floor, err)
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
		if l.Token() != floor+1 {
			return fmt.Errorf("the token above %d is %d", floor, l.Token())
		}
	}
	if l, err := m.TryAcquire(ctx, name, time.Minute, byHand(0)); !errors.Is(err, lease.ErrBadKey) {
		if err == nil {
			return fmt.Errorf("above the highest token there is: %d", l.Token())
		}
		return err
	}
	return nil
}

// foreign puts another value in the lease's place.
func (k *keyspace) foreign(ctx context.Context) error {
	m, _, err := k.two()
	if err != nil {
		return err
	}
	name := k.resource("foreign")
	key := k.key(name, "lease")
	if err := k.client.ZAdd(ctx, key, redis.Z{Score: 1, Member: "member"}).Err(); err != nil {
		return err
	}
	if err := k.client.PExpire(ctx, key, time.Minute).Err(); err != nil {
		return err
	}
	if _, err := m.TryAcquire(ctx, name, time.Minute, byHand(0)); !errors.Is(err, lease.ErrBadKey) {
		return fmt.Errorf("a lease key of another type: %w", orNil(err))
	}
	return nil
}

// told tries a waiter that does not poll for a minute.
func (k *keyspace) told(ctx context.Context) error {
	holder, err := k.manager(lease.Options{})
	if err != nil {
		return err
	}
	waiter, err := k.manager(lease.Options{PollEvery: time.Hour})
	if err != nil {
		return err
	}
	name := k.resource("told")
	held, err := holder.TryAcquire(ctx, name, time.Minute, byHand(0))
	if err != nil {
		return err
	}
	t := newTrial(nil)
	defer t.end()
	waiting := t.start(ctx, func(ctx context.Context) error {
		got, err := waiter.Acquire(ctx, name, time.Minute, byHand(0))
		if err == nil {
			err = got.Release(ctx)
		}
		return err
	})
	soon, cancel := context.WithTimeout(ctx, checkPatience/4)
	defer cancel()
	if err := k.queued(soon, name, waiting); err != nil {
		return err
	}
	if err := held.Release(ctx); err != nil {
		return err
	}
	if err := waiting.ends(soon); err != nil {
		return fmt.Errorf("the waiter was not notified of the release: %w", err)
	}
	return nil
}

// queued waits until a waiter has a place in the queue.
func (k *keyspace) queued(ctx context.Context, name string, waiting *pending) error {
	key := k.key(name, "queue")
	for {
		n, err := k.client.Exists(ctx, key).Result()
		if err == nil && n == 1 {
			return nil
		}
		select {
		case <-waiting.done:
			return fmt.Errorf("who waits gave up: %w", orNil(waiting.err))
		case <-ctx.Done():
			return errors.New("who waits has no place in the queue: is this user allowed to subscribe?")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
