package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// queueLength returns how many callers wait for r, according to Redis.
func (b bundle) queueLength(t *testing.T) int64 {
	t.Helper()
	n, err := b.rdb.ZCard(t.Context(), b.prefix+":{r}:queue").Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// queueUp starts a waiter and returns once it is in the queue.
func (b bundle) queueUp(ctx context.Context, t *testing.T, m *lease.Manager, got func(*lease.Lease, error)) {
	t.Helper()
	b.queueUpFor(ctx, t, m, nil, got)
}

// toAsk is what a waiter asks for if no release may grant it the lease, because of its floor: a release only reserves
// the lease for it, and it sends its own acquire.
func toAsk() *lease.AcquireOptions { return &lease.AcquireOptions{Floor: 1} }

func (b bundle) queueUpFor(
	ctx context.Context,
	t *testing.T,
	m *lease.Manager,
	opts *lease.AcquireOptions,
	got func(*lease.Lease, error),
) {
	t.Helper()
	before := b.queueLength(t)
	go func() { got(m.Acquire(ctx, "r", time.Minute, opts)) }()
	eventually(t, "a place in the queue", func() bool { return b.queueLength(t) > before })
}

func TestWaitersAreServedInTheOrderTheyCame(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	const waiters = 6
	var mu sync.Mutex
	var order []int
	done := make(chan struct{}, waiters)
	for i := range waiters {
		b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), func(l *lease.Lease, err error) {
			if err != nil {
				t.Error(err)
			} else {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				err = l.Release(context.Background())
			}
			if err != nil {
				t.Error(err)
			}
			done <- struct{}{}
		})
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		within(t, "the next waiter's turn", 5*time.Second, done)
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(order, want) {
		t.Errorf("served in the order %v", order)
	}
	if b.exists(t, b.prefix+":{r}:queue") || b.exists(t, b.prefix+":{r}:lease") {
		t.Error("a key was left behind")
	}
}

// Once the head has been told to come, nobody gets in before it.
func TestALeaseIsReservedForTheHead(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	p := setupProxied(t, lease.Options{}, nil) // the head, far away
	p.proxy.Latency(500 * time.Millisecond)
	head := manager(t, p.client, lease.Options{Prefix: b.prefix})
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, head, func(l *lease.Lease, err error) {
		if err != nil {
			t.Error(err)
		}
		got <- l
	})
	eventually(t, "the head to hear what it is told", func() bool {
		return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 1
	})
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	var held *lease.HeldError
	if !errors.As(err, &held) || held.Label != "reserved" || held.TTL > 10*time.Second {
		t.Fatalf("a newcomer got %v", err)
	}
	l := soon(t, got)
	p.proxy.Heal()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil); err != nil {
		t.Errorf("free again: %v", err)
	}
}

// Waiters whose process ended are passed over at once. A waiter whose process hangs delays the next by the reservation.
// Neither leaves a key behind.
func TestDeadAndHangingWaitersDoNotStandInTheWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiters int
		strike  func(*faults.Proxy)
		dead    bool
	}{
		"dead":    {6, (*faults.Proxy).Cut, true},
		"hanging": {1, (*faults.Proxy).Hang, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, lease.Options{})
			holder := b.acquire(t, "r", time.Minute, nil)
			p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
			far := manager(t, p.client, lease.Options{Prefix: b.prefix, ReleaseTimeout: 50 * time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{}, c.waiters)
			for range c.waiters {
				b.queueUp(ctx, t, far, func(*lease.Lease, error) { ended <- struct{}{} })
			}
			eventually(t, "them to hear", func() bool {
				return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 1
			})
			c.strike(p.proxy)
			got := make(chan time.Time, 1)
			b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), func(l *lease.Lease, err error) {
				got <- time.Now()
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Release(context.Background()); err != nil {
					t.Error(err)
				}
			})
			if c.dead {
				eventually(t, "the server to know that they are gone", func() bool {
					return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 1
				})
			}
			places := b.rdb.ZRange(t.Context(), b.prefix+":{r}:queue", 0, -1).Val()
			released := time.Now()
			if err := holder.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept := b.rdb.Get(t.Context(), b.prefix+":{r}:lease").Val()
			delay := (<-got).Sub(released)
			if hung := !c.dead; hung && delay < 150*time.Millisecond || delay > 5*time.Second {
				t.Errorf("the next was delayed by %v", delay)
			}
			for _, waiter := range places[:c.waiters] {
				if c.dead && kept == "~"+waiter[:32] {
					t.Error("the lease was kept for one who is dead")
				}
			}
			cancel()
			for range c.waiters {
				<-ended
			}
			p.proxy.Heal()
			eventually(t, "all keys but the counter to be gone", func() bool {
				return !b.exists(t, b.prefix+":{r}:queue") && !b.exists(t, b.prefix+":{r}:lease")
			})
		})
	}
}

// A waiter that gives up passes on its reservation and its place.
func TestAWaiterThatGivesUpLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	b.queueUp(ctx, t, b.m, func(_ *lease.Lease, err error) { gaveUp <- err })
	cancel()
	wantErr(t, <-gaveUp, lease.ErrHeld, context.Canceled)
	eventually(t, "the queue to be empty", func() bool { return b.queueLength(t) == 0 })
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.exists(t, b.prefix+":{r}:lease") {
		t.Error("the lease was kept for nobody")
	}
}

// The holder dies: the head watches the TTL and takes over, then the next after it.
func TestTheHeadTakesOverWhenTheHolderDies(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl = 3 * time.Second                                    // time for both to queue up
	b.acquire(t, "r", ttl, &lease.AcquireOptions{NoRenewal: true}) // the holder dies
	granted := make(chan *lease.Lease, 2)
	for range 2 {
		b.queueUp(t.Context(), t, b.m, func(l *lease.Lease, err error) {
			if err != nil {
				t.Error(err)
			}
			granted <- l
		})
	}
	for range 2 {
		timer := time.NewTimer(10 * time.Second)
		select {
		case l := <-granted:
			if l == nil || l.Release(t.Context()) != nil {
				t.Error("no lease")
			}
		case <-timer.C:
			t.Fatal("nobody took over")
		}
		timer.Stop()
	}
}

// With the queue off nothing is reserved, but waiters are still told.
func TestWithoutAQueueNothingIsReserved(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{NoQueue: true, PollEvery: time.Hour}) // told, or never
	holder := b.acquire(t, "r", time.Minute, nil)
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, b.m, func(l *lease.Lease, err error) {
		if err != nil {
			t.Error(err)
		}
		got <- l
	})
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := <-got; l != nil {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// After a lost connection the waiter looks, which makes up for lost messages.
func TestALostSubscriptionIsMadeUpFor(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	straight := bundle{rdb: testenv.Redis(t), prefix: p.prefix}
	straight.m = manager(t, straight.rdb, lease.Options{Prefix: p.prefix})
	holder := straight.acquire(t, "r", time.Minute, nil)
	got := make(chan *lease.Lease, 1)
	straight.queueUp(t.Context(), t, p.m, func(l *lease.Lease, err error) {
		if err != nil {
			t.Error(err)
		}
		got <- l
	})
	p.proxy.Cut()
	if err := holder.Release(t.Context()); err != nil { // the message goes nowhere
		t.Fatal(err)
	}
	p.proxy.Heal()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case l := <-got:
		if l == nil || l.Release(t.Context()) != nil {
			t.Error("no lease")
		}
	case <-timer.C:
		t.Error("the waiter sleeps on beside a free lease")
	}
}

// Contention: all workers get their turn, and about equally often.
func TestTurnsAreShared(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const workers, enough = 8, 200
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var turns [workers]int
	var all atomic.Int32
	var wg sync.WaitGroup
	holder := b.acquire(t, "r", time.Minute, nil)
	for i := range workers {
		m := manager(t, b.rdb, lease.Options{Prefix: b.prefix, Label: fmt.Sprint(i)})
		wg.Go(func() {
			for {
				l, err := m.Acquire(ctx, "r", time.Minute, nil)
				if err != nil {
					return
				}
				turns[i]++
				if all.Add(1) == enough {
					cancel()
				}
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	eventually(t, "all of them to wait, and to hear", func() bool {
		return b.queueLength(t) == workers && len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == workers
	})
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	least, most := slices.Min(turns[:]), slices.Max(turns[:])
	if all.Load() < enough || most-least > most/5+2 {
		t.Errorf("turns %v", turns)
	}
}

// A call ends when its context does, even if Redis hangs, and anything it may have been granted is removed.
func TestACallEndsWithItsContextThoughRedisHangs(t *testing.T) {
	t.Parallel()
	p := setupProxied(
		t,
		lease.Options{},
		func(o *redis.Options) { o.ReadTimeout, o.PoolTimeout = time.Minute, time.Minute },
	)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	held := p.acquire(t, "held", time.Minute, nil)
	warm := p.acquire(t, "warm", time.Minute, nil)
	p.proxy.Hang()
	for name, call := range map[string]func(ctx context.Context) error{
		"try": func(ctx context.Context) error {
			_, err := p.m.TryAcquire(ctx, "r", time.Minute, nil)
			return err
		},
		"acquire": func(ctx context.Context) error {
			_, err := p.m.Acquire(ctx, "r", time.Minute, nil)
			return err
		},
		"renew":   func(ctx context.Context) error { return held.Renew(ctx, time.Minute) },
		"reissue": func(ctx context.Context) error { _, err := warm.Reissue(ctx, 5); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		err := call(ctx)
		if took := time.Since(began); took > 10*time.Second { // it hangs until all calls have been made
			t.Errorf("%s ended %v after its context", name, took-50*time.Millisecond)
		}
		wantErr(t, err, lease.ErrUnavailable, context.DeadlineExceeded)
		cancel()
	}
	p.proxy.Resume()
	eventually(t, "what was granted late to be removed", func() bool { return !p.exists(t, leaseKey) })
	p.proxy.Heal()
}

// A place that a late request takes after its caller has left the queue is given up as well.
func TestAPlaceTakenTooLateIsGivenUp(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	straight := bundle{rdb: testenv.Redis(t), prefix: p.prefix}
	straight.m = manager(t, straight.rdb, lease.Options{Prefix: p.prefix})
	straight.acquire(t, "r", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	p.proxy.Latency(100 * time.Millisecond)
	done := make(chan struct{}, 1)
	wait := func(ctx context.Context) {
		_, _ = p.m.Acquire(ctx, "r", time.Minute, nil) // cannot be granted
		done <- struct{}{}
	}
	go wait(ctx)
	for range 8 { // at whatever point of the wait the caller gives up
		cancel()
		<-done
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(50+rand.IntN(400))*time.Millisecond)
		go wait(ctx)
	}
	<-done
	cancel()
	p.proxy.Heal()
	eventually(t, "the queue to be empty", func() bool { return straight.queueLength(t) == 0 })
}
