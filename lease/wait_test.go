package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// queueLength is how many wait for r, as Redis knows it.
func (b bundle) queueLength(t *testing.T) int64 {
	t.Helper()
	n, err := b.rdb.ZCard(t.Context(), b.prefix+":{r}:queue").Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// queueUp starts a waiter and returns once it stands in the queue.
func (b bundle) queueUp(ctx context.Context, t *testing.T, m *lease.Manager, got func(*lease.Lease, error)) {
	t.Helper()
	before := b.queueLength(t)
	go func() { got(m.Acquire(ctx, "r", time.Minute, nil)) }()
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

// While the head has been told to come, nobody slips in before it.
func TestALeaseIsReservedForTheHead(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	p := setupProxied(t, lease.Options{}, nil) // the head, far away
	head := manager(t, p.client, lease.Options{Prefix: b.prefix})
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, head, func(l *lease.Lease, err error) {
		if err != nil {
			t.Error(err)
		}
		got <- l
	})
	p.proxy.Latency(40 * time.Millisecond)
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	var held *lease.HeldError
	if !errors.As(err, &held) || held.TTL > 200*time.Millisecond {
		t.Errorf("a newcomer got %v", err)
	}
	l := <-got
	if l == nil {
		t.FailNow()
	}
	p.proxy.Heal()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil); err != nil {
		t.Errorf("free again: %v", err)
	}
}

// Waiters whose process ended are passed over at once; one whose process hangs delays the next by the
// reservation. Neither leaves a key behind.
func TestDeadAndHangingWaitersDoNotStandInTheWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiters     int
		strike      func(*faults.Proxy)
		least, most time.Duration
	}{
		"dead":    {6, (*faults.Proxy).Cut, 0, 150 * time.Millisecond},
		"hanging": {1, (*faults.Proxy).Hang, 150 * time.Millisecond, 5 * time.Second},
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
			if c.least == 0 {
				eventually(t, "the server to know that they are gone", func() bool {
					return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 1
				})
			}
			released := time.Now()
			if err := holder.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if delay := (<-got).Sub(released); delay < c.least || delay > c.most {
				t.Errorf("the next was delayed by %v", delay)
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

// A waiter that gives up passes on what was kept for it, and its place.
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

// The holder dies: the head watches the TTL and takes over, the next after it.
func TestTheHeadTakesOverWhenTheHolderDies(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl = 300 * time.Millisecond
	b.acquire(t, "r", ttl, &lease.AcquireOptions{NoRenewal: true}) // and is never heard of again
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
		timer := time.NewTimer(5 * time.Second)
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

// With the queue off nothing is kept for anybody, and waiters are told all the same.
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

// Messages that were lost with the connection are made up for by looking once it is back.
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

// Contention: everybody gets a turn, and about as many.
func TestTurnsAreShared(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const workers = 8
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var turns [workers]int
	var wg sync.WaitGroup
	for i := range workers {
		m := manager(t, b.rdb, lease.Options{Prefix: b.prefix, Label: fmt.Sprint(i)})
		wg.Go(func() {
			for {
				l, err := m.Acquire(ctx, "r", time.Minute, nil)
				if err != nil {
					return
				}
				turns[i]++
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	least, most := slices.Min(turns[:]), slices.Max(turns[:])
	if least < 10 || most-least > most/5+2 {
		t.Errorf("turns %v", turns)
	}
}

// A call ends when its context does, though Redis hangs, and what it may have been granted does not stay.
func TestACallEndsWithItsContextThoughRedisHangs(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 500*time.Millisecond, 1 })
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
		if took := time.Since(began); took > 150*time.Millisecond {
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
	for range 8 { // at whatever point of its waiting the caller gives up
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
