package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// onCluster is a bundle on a cluster, with its own client.
type onCluster struct {
	bundle
	cluster *services.Cluster
	client  *redis.ClusterClient
}

func setupCluster(t *testing.T, c *services.Cluster, opts lease.Options) onCluster {
	t.Helper()
	// By default go-redis dials a dead primary for a minute before it asks which server replaced it.
	client := testenv.ClusterClient(t, c, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Second })
	b := onCluster{cluster: c, client: client}
	b.rdb, b.prefix = b.client, strings.ReplaceAll(t.Name(), "/", ":")
	opts.Prefix = b.prefix
	b.m = manager(t, b.client, opts)
	return b
}

// untilReplicated waits until a replica has what the key's primary has now.
func (b onCluster) untilReplicated(t *testing.T, key string) {
	t.Helper()
	primary, err := b.client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	pipe := primary.Pipeline()
	pipe.Set(t.Context(), key+":marker", "", time.Minute)
	replicas := pipe.Do(t.Context(), "WAIT", 1, 10_000)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := replicas.Int(); err != nil || n < 1 {
		t.Fatalf("%d replicas have it: %v", n, err)
	}
}

func (b onCluster) slot(t *testing.T, key string) int {
	t.Helper()
	slot, err := b.client.ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// oneEach returns a resource for each primary.
func (b onCluster) oneEach(t *testing.T) [services.Primaries]string {
	t.Helper()
	var names [services.Primaries]string
	for i, missing := 0, services.Primaries; missing > 0; i++ {
		name := "r" + strconv.Itoa(i)
		leaseKey, _ := lease.KeysOf(b.prefix, name)
		if at := b.slot(t, leaseKey) * services.Primaries / 16_384; names[at] == "" {
			names[at] = name
			missing--
		}
	}
	return names
}

// A real cluster of three primaries. Tests that do not harm it share it.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, nil)
	t.Run("scripts loaded on one node only", func(t *testing.T) { aScriptOnOneNode(t, c) })
	t.Run("many leases at once", func(t *testing.T) { manyOnACluster(t, c) })
	t.Run("every legal name", func(t *testing.T) { t.Parallel(); everyNameOnACluster(t, c) })
	t.Run("waiters are told across nodes", func(t *testing.T) { t.Parallel(); waitersOnACluster(t, c) })
}

// C16 on a cluster: a script that one node knows is unknown to the others, sent alone and in a pipeline.
func aScriptOnOneNode(t *testing.T, c *services.Cluster) {
	t.Helper()
	const ttl = 3 * time.Second
	b := setupCluster(t, c, lease.Options{})
	names := b.oneEach(t)
	protocol(t, b.bundle, names[0]) // the one node
	source, err := os.ReadFile("lua/acquire.lua")
	if err != nil {
		t.Fatal(err)
	}
	hash := redis.NewScript(string(source)).Hash()
	for i, want := range []bool{true, false, false} {
		if known := testenv.RedisOn(t, c.Nodes[i].URL()).
			ScriptExists(t.Context(), hash).
			Val(); !slices.Equal(
			known,
			[]bool{want},
		) {
			t.Fatalf("node %d knows the script: %v, want %v", i, known, want)
		}
	}
	var held []*lease.Lease
	for _, name := range names {
		held = append(held, b.acquire(t, name, ttl, &lease.AcquireOptions{RenewEvery: ttl / 10}))
	}
	flush := func(n *services.Node) {
		if err := testenv.RedisOn(t, n.URL()).ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush(c.Nodes[1])
	flush(c.Nodes[2])
	for i, l := range held {
		eventually(t, "a renewal on each node", renewedSince(l))
		if err := l.Err(); err != nil {
			t.Errorf("on node %d: %v", i, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("on node %d: %v", i, err)
		}
	}
}

// CROSSSLOT cannot happen: the cluster itself says that all keys of a name are in one slot, whatever the name.
func everyNameOnACluster(t *testing.T, c *services.Cluster) {
	t.Helper()
	b := setupCluster(t, c, lease.Options{})
	nodes := map[int]bool{}
	for _, name := range oddNames() {
		leaseKey, counterKey := lease.KeysOf(b.prefix, name)
		slot := b.slot(t, leaseKey)
		nodes[slot*services.Primaries/16_384] = true
		for _, key := range []string{counterKey, strings.TrimSuffix(leaseKey, "lease") + "queue"} {
			if other := b.slot(t, key); other != slot {
				t.Errorf("%q: slots %d and %d", name, slot, other)
			}
		}
		protocol(t, b.bundle, name)
	}
	if len(nodes) != services.Primaries {
		t.Errorf("the names are on %d nodes only", len(nodes))
	}
}

// oddNames are legal names that might break a key, some of them written by hand.
func oddNames() []string {
	names := []string{
		"r",
		"{",
		"}",
		"{}",
		"}{",
		"{a}",
		"a{b}c",
		"{{a}}",
		"%",
		"%7B",
		"%7D%",
		" ",
		"\n",
		"\x00",
		"é",
		"e\u0301",
		"😀",
		"\u2028",
		strings.Repeat("x", lease.MaxResourceBytes),
		strings.Repeat("{", lease.MaxResourceBytes),
	}
	parts := []string{"{", "}", "%", "7B", ":", "lease", "a", "é", "😀", "\x00", "*", "\r\n", "~", " "}
	random := rand.New(rand.NewPCG(3, 16_384))
	for range 60 {
		var name strings.Builder
		for range 1 + random.IntN(12) {
			name.WriteString(parts[random.IntN(len(parts))])
		}
		names = append(names, name.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Waiters subscribe to any node that their client chooses, and a release on another node reaches them. Nobody polls,
// and the order is kept.
func waitersOnACluster(t *testing.T, c *services.Cluster) {
	t.Helper()
	b := setupCluster(t, c, lease.Options{})
	holder := b.acquire(t, "r", time.Minute, nil)
	const waiters = 6
	var mu sync.Mutex
	var order []int
	done := make(chan struct{}, waiters)
	for i := range waiters {
		other := setupCluster(t, c, lease.Options{PollEvery: time.Hour}) // they look only if told
		m := manager(t, other.client, lease.Options{Prefix: b.prefix, PollEvery: time.Hour})
		b.queueUp(t.Context(), t, m, func(l *lease.Lease, err error) {
			if err == nil {
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
}

// A primary dies and a lagging replica is promoted. Redis alone then grants the lease twice, and tokens too: a bare
// manager promises no more, which is why a Store claims. The old holder learns of it at its next renewal.
func TestAClusterThatLosesAPrimaryGivesTheSameTokenTwice(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, &services.ClusterOptions{NodeTimeout: 2 * time.Second})
	b := setupCluster(t, c, lease.Options{PollEvery: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	first := b.acquire(t, "r", time.Minute, nil)
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	slot := b.slot(t, leaseKey)
	primary, err := c.Primary(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	replica, err := c.Replica(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.HoldBack(ctx, primary, replica); err != nil {
		t.Fatal(err)
	}
	b.unseenGrants(t)
	a := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err := primary.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	// It waits from now on, through refused connections and CLUSTERDOWN.
	second, err := setupCluster(t, c, lease.Options{}).sharing(t, b).Acquire(ctx, "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Promoted(ctx, slot, replica); err != nil {
		t.Fatal(err)
	}
	if a.Err() != nil || second.Err() != nil || second.Token() > a.Token() {
		t.Errorf("tokens %d and %d; %v, %v: the failover lost nothing, and the Store's tests show nothing",
			a.Token(), second.Token(), a.Err(), second.Err())
	}
	eventually(t, "the old holder to be told", func() bool {
		return a.Renew(ctx, time.Minute) != nil && a.Err() != nil
	})
	wantReason(t, a.Err(), lease.ReasonTaken)
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
}

// sharing is a manager with b's client for the keys of another bundle.
func (b onCluster) sharing(t *testing.T, keys onCluster) *lease.Manager {
	t.Helper()
	return manager(t, b.client, lease.Options{Prefix: keys.prefix, PollEvery: 20 * time.Millisecond})
}

// One primary hangs. Leases on the others are renewed as if nothing had happened. Holders of leases on it learn that it
// is unreachable.
func TestAHungNodeCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, &services.ClusterOptions{NodeTimeout: 30 * time.Second})
	lost := make(chan *lease.LostError, 100)
	b := setupCluster(t, c, lease.Options{Hooks: lease.Hooks{
		Lost: func(_ *lease.Lease, cause *lease.LostError) { lost <- cause },
	}})
	const ttl = 3 * time.Second
	hung := map[string]bool{}
	for i := range 60 { // more than there are senders, due at different times and together
		name := "r" + strconv.Itoa(i)
		leaseKey, _ := lease.KeysOf(b.prefix, name)
		hung[name] = b.slot(t, leaseKey)*services.Primaries/16_384 == 0
		b.acquire(t, name, ttl, &lease.AcquireOptions{RenewEvery: ttl / 10})
	}
	if err := c.Nodes[0].Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(2 * ttl)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case cause := <-lost:
			if !hung[cause.Resource] {
				t.Errorf("%q is on a node that answers, and was lost: %v", cause.Resource, cause)
			} else {
				wantReason(t, cause, lease.ReasonUnreachable)
			}
		case <-timer.C:
			waiting = false
		}
	}
	if err := c.Nodes[0].Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// By default a go-redis client dials a dead primary for a minute. Callers that acquire or renew need the promoted
// replica before that.
func TestAPromotedReplicaIsFoundSoon(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, &services.ClusterOptions{NodeTimeout: time.Second})
	b := onCluster{cluster: c, client: testenv.ClusterClient(t, c, nil)}
	b.rdb, b.prefix = b.client, t.Name()
	b.m = manager(t, b.client, lease.Options{Prefix: b.prefix})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// They have their own clients, because looking for the new primary helps all that share one.
	asks := manager(t, testenv.ClusterClient(t, c, nil), lease.Options{Prefix: b.prefix})
	renews := manager(t, testenv.ClusterClient(t, c, nil), lease.Options{Prefix: t.Name() + "-by-hand"})
	byHand, err := renews.TryAcquire(ctx, "held{}", 20*time.Second, &lease.AcquireOptions{NoRenewal: true})
	if err != nil {
		t.Fatal(err)
	}
	held := b.acquire(t, "held{}", 20*time.Second, &lease.AcquireOptions{RenewEvery: 100 * time.Millisecond})
	leaseKey, _ := lease.KeysOf(b.prefix, "held{}")
	slot := b.slot(t, leaseKey)
	_, err = asks.TryAcquire(ctx, "held{}", time.Minute, nil)
	wantErr(t, err, lease.ErrHeld)
	primary, err := c.Primary(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	replica, err := c.Replica(ctx, primary)
	if err != nil {
		t.Fatal(err)
	}
	b.untilReplicated(t, leaseKey)
	if err := primary.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Promoted(ctx, slot, replica); err != nil {
		t.Fatal(err)
	}
	left := held.Remaining()
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = b.m.Acquire(soon, "held{}", time.Minute, nil)
	wantErr(t, err, lease.ErrHeld) // as the new primary says
	eventually(t, "a renewal there", func() bool { return held.Remaining() > left })
	eventually(t, "an answer to one who asks once, and again", func() bool {
		_, err := asks.TryAcquire(ctx, "held{}", time.Minute, nil)
		return errors.Is(err, lease.ErrHeld)
	})
	eventually(t, "an answer to a renewal by hand", func() bool {
		return !errors.Is(byHand.Renew(ctx, 20*time.Second), lease.ErrUnavailable)
	})
}
