package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// A grant that its replica has not confirmed is given back. Once the replica follows, the lease is granted.
func TestAGrantMayBeConfirmedByReplicas(t *testing.T) {
	t.Parallel()
	s := testenv.Sentinel(t, nil)
	rdb, follower := testenv.RedisOn(t, s.Primary.URL()), testenv.RedisOn(t, s.Replica.URL())
	m := manager(
		t,
		rdb,
		lease.Options{Prefix: "p", Durability: lease.Durability{Replicas: 1, Timeout: 300 * time.Millisecond}},
	)
	l, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := follower.Exists(t.Context(), "p:{r}:lease").Result(); err != nil || n != 1 {
		t.Errorf("the replica does not have the lease: %d, %v", n, err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.HoldBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = m.TryAcquire(t.Context(), "r", time.Minute, nil)
	if wantErr(t, err, lease.ErrUnavailable); errors.Is(err, lease.ErrHeld) {
		t.Errorf("got %v", err)
	}
	if n := rdb.Exists(t.Context(), "p:{r}:lease").Val(); n != 0 {
		t.Error("the grant that was not confirmed is still there")
	}
}

// The time replicas take to confirm says nothing about the distance to the server, on which reservations and the
// patience of renewals depend.
func TestAConfirmationIsNoDistance(t *testing.T) {
	t.Parallel()
	const timeout = time.Second // which a server without replicas waits out
	b := setup(t, lease.Options{})
	b.acquire(t, "r", time.Minute, nil)
	m := manager(t, b.rdb, lease.Options{Prefix: b.prefix, Durability: lease.Durability{Replicas: 1, Timeout: timeout}})
	began := time.Now()
	_, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
	wantErr(t, err, lease.ErrHeld)
	if took := time.Since(began); took < timeout {
		t.Fatalf("refused after %v: nothing was waited for, and the test shows nothing", took)
	}
	if trip := lease.RoundTrip(m); trip <= 0 || trip > timeout {
		t.Errorf("a round trip of up to %v was measured", trip)
	}
}

func TestDurabilityIsRefusedWhereItCannotBe(t *testing.T) {
	t.Parallel()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = cluster.Close() }()
	_, err := lease.NewManager(cluster, &lease.Options{Durability: lease.Durability{Replicas: 1}})
	wantErr(t, err, lease.ErrInvalid)
	b := setup(t, lease.Options{})
	_, err = lease.NewManager(b.rdb, &lease.Options{Durability: lease.Durability{Replicas: -1}})
	wantErr(t, err, lease.ErrInvalid)
}

// WAITAOF exists from Redis 7.2 on. An older server reports that, and nothing is held; so does a newer one without an
// append-only file.
func TestWAITAOFThatTheServerCannotDoGrantsNothing(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t, "--appendonly", "no")
	rdb := testenv.RedisOn(t, server.URL())
	m := manager(t, rdb, lease.Options{Prefix: "p", Durability: lease.Durability{LocalAOF: true}})
	_, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
	wantErr(t, err, lease.ErrUnavailable)
	if n := rdb.Exists(context.Background(), "p:{r}:lease").Val(); n != 0 {
		t.Error("the grant that was not confirmed is still there")
	}
}
