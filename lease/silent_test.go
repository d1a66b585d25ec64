package lease_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// promised measures round trips from now on. The function that it returns gives the longest time for which silent
// waiters keep a free lease from a live one, as package lease promises: 2 s, or ten of the longest round trips. On a
// busy machine those take long, for the waiters as well. The reservations in the queue now come from the waiters' own
// round trips, at twice as much each.
func (b bundle) promised(t *testing.T) func(...*lease.Manager) time.Duration {
	t.Helper()
	var asked time.Duration
	for _, w := range b.rdb.ZRangeWithScores(t.Context(), b.prefix+":{r}:queue", 0, -1).Val() {
		_, share := math.Modf(w.Score)
		asked = max(asked, time.Duration(share*16384*float64(time.Millisecond)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	longest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for last := time.Now(); ctx.Err() == nil; {
			<-time.After(10 * time.Millisecond)
			_ = b.rdb.Ping(ctx).Err()
			most = max(most, time.Since(last)-10*time.Millisecond)
			last = time.Now()
		}
		longest <- most
	}()
	return func(all ...*lease.Manager) time.Duration {
		cancel()
		trip := <-longest
		for _, m := range all {
			trip = max(trip, lease.RoundTrip(m))
		}
		return max(2*time.Second, 10*trip, 5*asked)
	}
}

// crowd starts n waiters of one manager and returns once all are in the queue.
func (b bundle) crowd(
	ctx context.Context,
	t *testing.T,
	m *lease.Manager,
	n int,
	got func(*lease.Lease, error),
) *sync.WaitGroup {
	t.Helper()
	before := b.queueLength(t)
	var all sync.WaitGroup
	for range n {
		all.Go(func() { got(m.Acquire(ctx, "r", time.Minute, nil)) })
	}
	eventually(t, "places in the queue", func() bool { return b.queueLength(t) == before+int64(n) })
	return &all
}

// wantSoon releases a lease and checks that the waiter behind the silent ones gets it in time.
func (b bundle) wantSoon(t *testing.T, far *lease.Manager, release func() error, got <-chan *lease.Lease) {
	t.Helper()
	promised := b.promised(t)
	if err := release(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	select {
	case l := <-got:
		took := time.Since(began)
		t.Logf("a live waiter had it after %v", took)
		if most := promised(b.m, far); took > most {
			t.Errorf("a live waiter had it after %v, more than %v", took, most)
		}
		if l == nil || l.Release(t.Context()) != nil {
			t.Error("no lease")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the live waiter sleeps on beside a free lease")
	}
}

// C58: a host falls silent, its connections stay. Its waiters keep a free lease from a live one for the same short
// time, however many they are.
func TestCase58_ASilentHostsWaitersCostTheSameHoweverMany(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5, 20, 40, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := setup(t, lease.Options{})
			holder := b.acquire(t, "r", time.Minute, nil)
			p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
			far := manager(t, p.client, lease.Options{Prefix: b.prefix, ReleaseTimeout: 50 * time.Millisecond})
			ctx, cancel := context.WithCancel(t.Context())
			gone := b.crowd(ctx, t, far, n, nobody)
			p.proxy.Hang()
			got := make(chan *lease.Lease, 1)
			near := manager(t, testenv.RedisOn(t, testenv.RedisURL(t)), lease.Options{Prefix: b.prefix})
			b.queueUp(t.Context(), t, near, into(t, got))
			b.wantSoon(t, far, func() error { return holder.Release(t.Context()) }, got)
			if left := b.queueLength(t); left != 0 {
				t.Errorf("%d places of the silent are left", left)
			}
			cancel()
			gone.Wait()
			p.proxy.Heal()
		})
	}
}

// C58 with a process for each of the silent waiters, and with the holder on the silent host as well. Nobody releases,
// so the wait is for its TTL.
func TestCase58_TheHolderFallsSilentWithItsHost(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl = 500 * time.Millisecond
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	ctx, cancel := context.WithCancel(t.Context())
	far := func() *lease.Manager {
		return manager(t, p.client, lease.Options{Prefix: b.prefix, ReleaseTimeout: 50 * time.Millisecond})
	}
	holder, err := far().TryAcquire(ctx, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err != nil {
		t.Fatal(err)
	}
	var gone []*sync.WaitGroup
	var last *lease.Manager
	for range 12 {
		last = far()
		gone = append(gone, b.crowd(ctx, t, last, 1, nobody))
	}
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), into(t, got))
	if err := holder.Renew(ctx, ttl); err != nil { // all of them look once it has run out
		t.Fatal(err)
	}
	p.proxy.Hang()
	late := make(chan *lease.Lease, 1)
	go func() { into(t, late)(b.m.Acquire(t.Context(), "r", time.Minute, nil)) }() // and so does a newcomer
	b.wantSoon(t, last, func() error { <-time.After(ttl); return nil }, got)
	given(t, late)
	cancel()
	for _, g := range gone {
		g.Wait()
	}
	p.proxy.Heal()
}

// C58: live waiters keep their order, however the silent ones stand between them.
func TestCase58_TheLivingKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	far := manager(t, p.client, lease.Options{Prefix: b.prefix, ReleaseTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var gone []*sync.WaitGroup
	var order []int
	managers := []*lease.Manager{far}
	served := make(chan int, 6)
	for i := range 6 {
		gone = append(gone, b.crowd(ctx, t, far, 3, nobody))
		m := manager(t, b.rdb, lease.Options{Prefix: b.prefix})
		managers = append(managers, m)
		b.queueUp(t.Context(), t, m, func(l *lease.Lease, err error) {
			served <- i
			if err != nil || l.Release(t.Context()) != nil {
				t.Error(err)
			}
		})
	}
	p.proxy.Hang()
	promised := b.promised(t)
	began := time.Now()
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		order = append(order, <-served)
	}
	took := time.Since(began)
	if most := promised(managers...); took > most {
		t.Errorf("all of them were served after %v, more than %v", took, most)
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(order, want) {
		t.Errorf("served in the order %v", order)
	}
	cancel()
	for _, g := range gone {
		g.Wait()
	}
	p.proxy.Heal()
}

// C58: Redis is stopped while waiters give up, so their places stay. Their process lives and receives messages.
func TestCase58_PlacesGivenUpWhileRedisWasStopped(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	b := ownBundle(t, server, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	few := testenv.RedisOn(t, server.URL())
	narrow := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = narrow.Close() })
	m := manager(t, narrow, lease.Options{Prefix: b.prefix, ReleaseTimeout: 50 * time.Millisecond})
	b.listens(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	gone := b.crowd(ctx, t, m, 20, nobody)
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, manager(t, few, lease.Options{Prefix: b.prefix}), into(t, got))
	if err := server.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	gone.Wait()
	<-time.After(500 * time.Millisecond) // longer than they try to give their places up
	if err := server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.queueLength(t); n < 10 {
		t.Fatalf("%d places are left: the test shows nothing", n)
	}
	b.wantSoon(t, m, func() error { return holder.Release(t.Context()) }, got)
}

// C58 on a cluster, where PUBLISH does not tell who received a message.
func TestCase58_SilentWaitersOnACluster(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, nil)
	b := setupCluster(t, c, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	far := setupCluster(t, c, lease.Options{})
	hung, resume := make(chan struct{}), make(chan struct{})
	spyOn(t, far.client, "acquire").see = func(_ redis.Cmder, next func() error) error {
		if lease.IsClosed(hung) {
			<-resume
		}
		return next()
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := b.crowd(ctx, t, manager(t, far.client, lease.Options{Prefix: b.prefix}), 20, nobody)
	close(hung)
	got := make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, b.m, into(t, got))
	b.wantSoon(t, b.m, func() error { return holder.Release(t.Context()) }, got)
	close(resume)
	cancel()
	gone.Wait()
}

// deaf is a waiter in the queue of r whose process receives its messages but does not come.
func (b bundle) deaf(t *testing.T, place float64) {
	t.Helper()
	manager := token.NewNonce().Hex()
	channel := b.rdb.Subscribe(t.Context(), b.prefix+":wake:"+manager)
	t.Cleanup(func() { _ = channel.Close() })
	if _, err := channel.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.do(t, "ZADD", b.prefix+":{r}:queue", place, token.NewNonce().Hex()+manager)
}

// lastPlace returns the place of the last waiter in the queue of r.
func (b bundle) lastPlace(t *testing.T) float64 {
	t.Helper()
	last, err := b.rdb.ZRangeWithScores(t.Context(), b.prefix+":{r}:queue", -1, -1).Result()
	if err != nil || len(last) != 1 {
		t.Fatal(last, err)
	}
	return math.Floor(last[0].Score)
}

// C58: a waiter that comes during a roll call stands behind those who came before. The queue has been emptied, and the
// places given out are ahead of the clock, as they are when a crowd comes within a millisecond; neither matters.
func TestCase58_WhoComesDuringARollCallIsLast(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	ahead := float64(time.Now().Add(time.Hour).UnixMilli())
	b.deaf(t, ahead-1)
	b.deaf(t, ahead)
	_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil) // calls the roll
	wantErr(t, err, lease.ErrHeld)
	if n := b.queueLength(t); n != 0 {
		t.Fatalf("%d wait: there was no roll call, and the test shows nothing", n)
	}
	b.do(t, "PEXPIRE", b.prefix+":{r}:lease", 60_000) // a machine that is slow misses nothing of it
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m, _ := b.onlyTold(t)
	b.queueUp(ctx, t, m, nobody)
	if place := b.lastPlace(t); place != ahead+1 {
		t.Errorf("its place is %.0f, %.0f was there before", place, ahead)
	}
}

// C58: a waiter whose reply was lost, so that it does not know its place, keeps the place in a roll call that it calls
// itself.
func TestCase58_AnUnknownPlaceIsKeptByWhoCallsTheRoll(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	b.deaf(t, 1000)
	me := token.NewNonce().Hex() + token.NewNonce().Hex()
	b.do(t, "ZADD", b.prefix+":{r}:queue", 2000, me)
	leaseKey, counterKey := lease.KeysOf(b.prefix, "r")
	reply, err := redis.NewScript(acquireSource(t)).
		Run(t.Context(), b.rdb, []string{leaseKey, counterKey, b.prefix + ":{r}:queue"},
			token.NewNonce().Hex(), 60_000, "label", "0", "0", me, b.prefix+":wake:", 200, 75_000, "1", "").
		Slice()
	if err != nil {
		t.Fatal(err)
	}
	if reply[0] != "held" || reply[2] != "reserved" || reply[4] != "2000" {
		t.Errorf("got %v", reply)
	}
}

// hears reports whether a channel has subscribers.
func (b bundle) hears(t *testing.T, channel string) bool {
	t.Helper()
	return b.rdb.PubSubNumSub(t.Context(), channel).Val()[channel] > 0
}

// C61: a subscription that is cut when a lease is handed on costs a turn, but not the place.
func TestCase61_ACutSubscriptionKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	p := setupProxied(t, lease.Options{}, nil)
	first, second, third := make(chan *lease.Lease, 1), make(chan *lease.Lease, 1), make(chan *lease.Lease, 1)
	b.queueUp(t.Context(), t, manager(t, p.client, lease.Options{Prefix: b.prefix}), into(t, first))
	var channel string // the channel of the first
	eventually(t, "the first to hear", func() bool {
		channels := b.rdb.PubSubChannels(t.Context(), b.prefix+":wake:*").Val()
		if len(channels) == 1 {
			channel = channels[0]
		}
		return channel != ""
	})
	b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), into(t, second))
	b.queueUp(t.Context(), t, manager(t, b.rdb, lease.Options{Prefix: b.prefix}), into(t, third))
	p.proxy.Cut()
	eventually(t, "the server to know that it is gone", func() bool { return !b.hears(t, channel) })
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	passed := soon(t, second)
	p.proxy.Heal()
	eventually(t, "the first to come back, and to hear again", func() bool {
		return b.queueLength(t) == 2 && b.hears(t, channel)
	})
	if err := passed.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := soon(t, first)
	if len(third) != 0 {
		t.Error("the third came before the first")
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	given(t, third)
}
