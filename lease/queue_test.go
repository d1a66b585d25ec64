package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// slow is a manager on its own client. It receives its messages, but its acquires are held back once hold has been
// called.
type slow struct {
	m     *lease.Manager
	held  atomic.Bool
	asked chan struct{} // receives one for each acquire that is held back
}

func (b bundle) slow(t *testing.T) *slow {
	t.Helper()
	rdb := testenv.RedisOn(t, testenv.RedisURL(t))
	s := &slow{m: manager(t, rdb, lease.Options{Prefix: b.prefix}), asked: make(chan struct{}, 64)}
	resume := make(chan struct{})
	t.Cleanup(func() { close(resume) })
	spyOn(t, rdb, "acquire").see = func(_ redis.Cmder, next func() error) error {
		if s.held.Load() {
			s.asked <- struct{}{}
			<-resume
		}
		return next()
	}
	return s
}

func (s *slow) hold() { s.held.Store(true) }

// onlyTold is a manager whose waiters look only when they are told to, never by the clock.
func (b bundle) onlyTold(t *testing.T) (*lease.Manager, redis.UniversalClient) {
	t.Helper()
	rdb := testenv.RedisOn(t, testenv.RedisURL(t))
	m, err := lease.NewManager(rdb, lease.WithClock(lease.Options{Prefix: b.prefix}, newHandClock().fake()))
	if err != nil {
		t.Fatal(err)
	}
	return m, rdb
}

// into passes on the result of a waiting acquire.
func into(t *testing.T, got chan<- *lease.Lease) func(*lease.Lease, error) {
	t.Helper()
	return func(l *lease.Lease, err error) {
		if err != nil {
			t.Error(err)
		}
		got <- l
	}
}

// given releases a lease that a waiter should have by now.
func given(t *testing.T, got <-chan *lease.Lease) {
	t.Helper()
	if err := soon(t, got).Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// soon returns the lease that a waiter should have by now.
func soon(t *testing.T, got <-chan *lease.Lease) *lease.Lease {
	t.Helper()
	select {
	case l := <-got:
		if l == nil {
			t.Fatal("no lease")
		}
		return l
	case <-time.After(5 * time.Second):
		t.Fatal("the waiter sleeps on beside a free lease")
	}
	return nil
}

// nobody is for waiters that are going to be cancelled.
func nobody(*lease.Lease, error) {}

// The lease is reserved for a waiter that gives up: the next waiter gets it at once, not when the reservation ends.
func TestAWaiterThatGivesUpHandsOnWhatWasKeptForIt(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	head := b.slow(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.queueUpFor(ctx, t, head.m, toAsk(), nobody)
	next, _ := b.onlyTold(t)
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, next, into(t, got))
	head.hold()
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the head to be told", 5*time.Second, head.asked)
	cancel()
	given(t, got)
}

// The next waiter may hang: the one behind it is told to look once the reservation ends.
func TestTheOneBehindIsToldWhenAWaiterGivesUp(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := b.slow(t), b.slow(t)
	b.queueUpFor(ctx, t, first.m, toAsk(), nobody)
	hangs, stop := context.WithCancel(t.Context())
	defer stop()
	b.queueUpFor(hangs, t, second.m, toAsk(), nobody)
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, b.m, into(t, got)) // by itself it would look after 25 s
	first.hold()
	second.hold()
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the first to be told", 5*time.Second, first.asked)
	cancel()
	within(t, "the second to be told", 5*time.Second, second.asked)
	given(t, got)
}

// The head watches the holder's TTL, so a waiter that becomes the head has to be told.
func TestTheNewHeadIsToldWhenTheHeadGivesUp(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	b.acquire(t, "r", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.queueUp(ctx, t, b.m, nobody)
	next, rdb := b.onlyTold(t)
	looks := spyOn(t, rdb, "acquire")
	waits, stop := context.WithCancel(t.Context())
	defer stop()
	b.queueUp(waits, t, next, nobody)
	before := looks.calls.Load()
	cancel()
	eventually(t, "a look of the new head", func() bool { return looks.calls.Load() > before })
}

// A holder died and its key has expired. A caller that asks first then does not overtake the waiters, whether it waits
// too or asks once.
func TestANewcomerDoesNotOvertakeTheQueue(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits=%v", waits), func(t *testing.T) {
			t.Parallel()
			b := setup(t, lease.Options{})
			b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
			head, _ := b.onlyTold(t)
			got := make(chan *lease.Lease, 1)
			b.queueUp(t.Context(), t, head, into(t, got))
			b.do(t, "DEL", b.prefix+":{r}:lease")
			late := make(chan *lease.Lease, 1)
			if waits {
				newcomer, _ := b.onlyTold(t)
				b.listens(t, newcomer)
				go func() { into(t, late)(newcomer.Acquire(t.Context(), "r", time.Minute, nil)) }()
			} else {
				_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
				var held *lease.HeldError
				if !errors.As(err, &held) || held.Label != "reserved" || held.TTL > 10*time.Second {
					t.Errorf("got %v", err)
				}
			}
			if !waits {
				given(t, got)
				return
			}
			first := soon(t, got)
			eventually(t, "the newcomer's place", func() bool { return b.queueLength(t) == 1 })
			b.wantQueueToRunOut(t)
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
			given(t, late)
		})
	}
}

// listens makes a manager wait for another lease, so that it has its subscription and queues up at once.
func (b bundle) listens(t *testing.T, m *lease.Manager) {
	t.Helper()
	b.acquire(t, "other", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _, _ = m.Acquire(ctx, "other", time.Minute, nil) }()
	eventually(t, "a place in the queue", func() bool { return b.exists(t, b.prefix+":{other}:queue") })
}

// wantQueueToRunOut checks that an abandoned queue leaves no key behind.
func (b bundle) wantQueueToRunOut(t *testing.T) {
	t.Helper()
	if left := b.pttl(t, b.prefix+":{r}:queue"); left <= 0 || left > 75*time.Second {
		t.Errorf("the queue has %v left", left)
	}
}

func TestAQueueRunsOut(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	b.acquire(t, "r", time.Minute, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		b.queueUp(ctx, t, b.m, nobody)
		b.wantQueueToRunOut(t)
	}
}

// A dead head does not keep a lease, whose holder died, from others that ask.
func TestADeadHeadKeepsNothingFromANewcomer(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	far := manager(t, p.client, lease.Options{Prefix: b.prefix, ReleaseTimeout: 50 * time.Millisecond})
	b.queueUp(ctx, t, far, func(*lease.Lease, error) { close(ended) })
	p.proxy.Cut()
	eventually(t, "the server to know that it is gone", func() bool {
		return len(b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()) == 0
	})
	b.do(t, "DEL", b.prefix+":{r}:lease")
	l, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// An idle waiter sends at most four commands a minute: three looks, if the holder's TTL is 30 s and the waiter always
// sees the least of it, and one ping of a subscription that has been silent for a minute.
func TestAnIdleWaiterIsQuiet(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl, minutes = 30 * time.Second, 5
	b.acquire(t, "r", ttl, nil)
	rdb, clock := testenv.RedisOn(t, testenv.RedisURL(t)), newFiringClock()
	m, err := lease.NewManager(rdb, lease.WithClock(lease.Options{Prefix: b.prefix}, clock.fake()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	b.queueUp(ctx, t, m, func(*lease.Lease, error) { close(done) })
	within(t, "the timer of the waiter", 5*time.Second, clock.set)
	commands := &keyHook{} // all of them
	rdb.AddHook(commands)
	for range minutes * 60 {
		// This is how a holder that renews at a third of the TTL leaves it.
		if err := b.rdb.PExpire(t.Context(), b.prefix+":{r}:lease", 2*ttl/3).Err(); err != nil {
			t.Fatal(err)
		}
		if clock.advance(time.Second) > 0 {
			within(t, "the timer of the waiter", 5*time.Second, clock.set)
		}
	}
	if n := commands.calls.Load(); n > 3*minutes || n < 2*minutes {
		t.Errorf("%d commands in %d minutes", n, minutes)
	}
	cancel()
	<-done
}

// Calls of a busy process travel in pipelines, which cannot teach a server a script. No caller notices.
func TestCase16_CallsThatTravelTogetherOutliveAnEmptyScriptCache(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	rdb := testenv.RedisOn(t, server.URL())
	hook := &hangSome{}
	rdb.AddHook(hook)
	b := bundle{rdb: rdb, prefix: "p", m: manager(t, rdb, lease.Options{Prefix: "p"})}
	const workers, rounds = 16, 50
	stop, flushed := make(chan struct{}), make(chan struct{})
	other := testenv.RedisOn(t, server.URL())
	go func() {
		defer close(flushed)
		for {
			select {
			case <-stop:
				return
			default:
				if err := other.ScriptFlush(t.Context()).Err(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for round := range rounds {
				l, err := b.m.TryAcquire(t.Context(), fmt.Sprintf("r%d", w), time.Minute, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if int(l.Token()) != round+1 {
					t.Errorf("token %d in round %d", l.Token(), round)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	<-flushed
	if hook.pipelines.Load() == 0 {
		t.Error("nothing travelled together: the test shows nothing")
	}
}
