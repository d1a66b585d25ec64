package fencepost_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// failover is a Redis that can fail over to a replica that lags.
type failover struct {
	client   func() redis.UniversalClient // a new one
	holdBack func(context.Context) error
	kill     func(context.Context) error
	promoted func(context.Context) error
}

// I4 through a real failover to a lagging replica: Redis gives away a lease that is still held, with a token that it
// has issued before. The fence decides: the second holder is lifted above the first, whose guarded writes are refused,
// and no token is claimed twice.
func TestInvariant4_AFailoverLosesTheLease(t *testing.T) {
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) { t.Parallel(); losesTheLease(t, behindSentinels(t)) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); losesTheLease(t, inACluster(t, "invoice-1")) })
}

func losesTheLease(t *testing.T, f failover) {
	t.Helper()
	var c counts
	b := setupOn(t, testenv.Pool(t), f.client(), fencepost.Options{Namespace: "failover", Events: c.events()})
	recordClaims(t, b)
	other := &bundle{pool: b.pool, rdb: f.client(), opts: b.opts}
	other.store = other.another(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bare := control(t, b.rdb)

	turn(t, b) // token 1, which the replica has
	if err := f.holdBack(ctx); err != nil {
		t.Fatal(err)
	}
	turn(t, b)
	turn(t, b)
	a := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	bareA := hold(ctx, t, bare)
	if err := f.kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := f.promoted(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := other.store.Acquire(ctx, "invoice-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Release(context.Background()) })
	bareB := hold(ctx, t, control(t, other.rdb))

	if a.Err() != nil || second.Err() != nil || a.Token() != 4 || second.Token() != 5 {
		t.Errorf("tokens %d and %d; %v, %v: the failover lost nothing", a.Token(), second.Token(), a.Err(), second.Err())
	}
	c.want(t, 0, 1)
	set := func(value string) fencepost.Set { return fencepost.Set{"value": value} }
	wantStale(t, b.table.Update(ctx, a, fencepost.Key{"1"}, set("A")), 4, 5)
	wantStale(t, writeGuarded(ctx, b, a.Claim(), "A"), 4, 5)
	if err := table(t, other.store).Update(ctx, second, fencepost.Key{"1"}, set("B")); err != nil {
		t.Error(err)
	}
	wantStale(t, writeGuarded(ctx, b, a.Claim(), "A"), 4, 5)
	if r := b.read(t, "1"); r.Value != "B" || r.LastFencingToken != 5 {
		t.Errorf("the row is %+v", r)
	}
	for i, tok := range claimed(t, b) {
		if tok != fencepost.Token(i+1) {
			t.Errorf("claim %d was for token %d", i+1, tok)
		}
	}
	// The control: leases without a claim. Both holders may write, under the same token.
	if bareA.Err() != nil || bareB.Err() != nil || bareA.Token() != bareB.Token() {
		t.Errorf(
			"the control has tokens %d and %d (%v, %v): I4 is shown by nothing",
			bareA.Token(),
			bareB.Token(),
			bareA.Err(),
			bareB.Err(),
		)
	}
}

// turn is one piece of work under a lease.
func turn(t *testing.T, b *bundle) {
	t.Helper()
	l := b.acquire(t, "invoice-1", nil)
	if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "before"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// control is a manager without a fence. Its resource has the same keys as the store's.
func control(t *testing.T, rdb redis.UniversalClient) *lease.Manager {
	t.Helper()
	m, err := lease.NewManager(rdb, &lease.Options{Prefix: "control"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hold(ctx context.Context, t *testing.T, m *lease.Manager) *lease.Lease {
	t.Helper()
	l, err := m.TryAcquire(ctx, "invoice-1", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func behindSentinels(t *testing.T) failover {
	t.Helper()
	s := testenv.Sentinel(t, nil)
	return failover{
		client:   func() redis.UniversalClient { return testenv.SentinelClient(t, s, nil) },
		holdBack: s.HoldBack, kill: s.Primary.Kill, promoted: s.Promoted,
	}
}

// inACluster makes the primary of a resource fail.
func inACluster(t *testing.T, resource string) failover {
	t.Helper()
	c := testenv.Cluster(t, &services.ClusterOptions{NodeTimeout: 2 * time.Second})
	client := func() redis.UniversalClient {
		return testenv.ClusterClient(t, c, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Second })
	}
	keySlot, err := client().ClusterKeySlot(t.Context(), "{"+resource+"}").Result()
	if err != nil {
		t.Fatal(err)
	}
	slot := int(keySlot)
	primary, err := c.Primary(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	replica, err := c.Replica(t.Context(), primary)
	if err != nil {
		t.Fatal(err)
	}
	return failover{
		client:   client,
		holdBack: func(ctx context.Context) error { return c.HoldBack(ctx, primary, replica) },
		kill:     primary.Kill,
		promoted: func(ctx context.Context) error { return c.Promoted(ctx, slot, replica) },
	}
}
