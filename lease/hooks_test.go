package lease_test

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// scriptCalls returns how many script calls a server has received, by its own count.
func scriptCalls(t *testing.T, client redis.UniversalClient) int {
	t.Helper()
	stats, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, found := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		n, _ := strconv.Atoi(found[1])
		sum += n
	}
	return sum
}

// C54: the caller's hooks see each command that its client sends, including renewals and pipelined commands.
func TestCase54_HooksSeeEachCommand(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	client := testenv.RedisOn(t, server.URL())
	seen, renewals := &keyHook{part: "eval"}, spyOn(t, client, "renew")
	client.AddHook(seen)
	b := bundle{rdb: testenv.RedisOn(t, server.URL()), prefix: "p", m: manager(t, client, lease.Options{Prefix: "p"})}
	l := b.acquire(t, "r", 10*time.Second, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b.queueUp(ctx, t, b.m, nobody)
	eventually(t, "renewals", func() bool { return renewals.calls.Load() > 5 })
	cancel()
	eventually(t, "the waiter to leave", func() bool { return b.queueLength(t) == 0 })
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	sent := scriptCalls(t, b.rdb)
	if told := int(seen.calls.Load()); sent != told || sent < 9 {
		t.Errorf("%d calls were sent, and hooks saw %d", sent, told)
	}
}

// C54: the hooks of a cluster client also see renewals, which travel to each of its nodes.
func TestCase54_HooksOfAClusterSeeRenewals(t *testing.T) {
	t.Parallel()
	b := setupCluster(t, testenv.Cluster(t, nil), lease.Options{})
	renewals := spyOn(t, b.client, "renew")
	for _, name := range b.oneEach(t) {
		b.acquire(t, name, time.Minute, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	}
	eventually(t, "renewals", func() bool { return renewals.calls.Load() > 6 })
}
