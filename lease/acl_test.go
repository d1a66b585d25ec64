package lease_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// documentedUser returns the words of the ACL line in docs/operating.md, without those for channels if the server does
// not know them.
func documentedUser(t *testing.T, server *services.Redis) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER billing .*$`).FindString(string(text))
	if line == "" {
		t.Fatal("docs/operating.md does not say which rights are needed")
	}
	words := strings.Fields(line)
	if !testenv.RedisAtLeast(t, testenv.RedisOn(t, server.URL()), "6.2") {
		words = slices.DeleteFunc(words, func(w string) bool { return w == "resetchannels" || w[0] == '&' })
	}
	return words
}

func connectAs(t *testing.T, addr string, acl []string) *redis.Client {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = admin.Close() }()
	args := make([]any, len(acl))
	for i, word := range acl {
		args[i] = word
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr, Username: "billing", Password: "secret", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// useAll does everything that a manager does, including waiting and handing on. The admin sees the waiters.
func useAll(ctx context.Context, t *testing.T, admin, client redis.UniversalClient) error {
	t.Helper()
	if err := useCounters(ctx, t, admin, client); err != nil {
		return err
	}
	m := manager(t, client, lease.Options{Prefix: "fencepost:billing", CounterIdle: 48 * time.Hour, PollEvery: time.Hour})
	first, err := m.Acquire(ctx, "r", time.Minute, &lease.AcquireOptions{Floor: 7})
	if err != nil {
		return err
	}
	if err := first.Renew(ctx, time.Minute); err != nil {
		return err
	}
	if _, err := first.Reissue(ctx, 100); err != nil {
		return err
	}
	gaveUp := make(chan struct{})
	quitter, quit := context.WithCancel(ctx)
	go func() {
		defer close(gaveUp)
		_, _ = m.Acquire(quitter, "r", time.Minute, nil) // cannot be granted while the first holds it
	}()
	third := make(chan error, 1)
	go func() {
		l, err := m.Acquire(ctx, "r", time.Minute, nil)
		if err == nil {
			err = l.Release(ctx)
		}
		third <- err
	}()
	// Whichever of the two came first, one gives up and the other is told. Only that one is left to be handed the
	// lease, and the last release meets an empty queue.
	waiting := func() int64 { return admin.ZCard(ctx, "fencepost:billing:{r}:queue").Val() }
	until(ctx, func() bool { return waiting() == 2 || lease.IsClosed(gaveUp) }) // at once, if a permission is missing
	quit()
	<-gaveUp
	until(ctx, func() bool { return waiting() <= 1 })
	if err := first.Release(ctx); err != nil {
		return err
	}
	return <-third
}

// useCounters does everything that involves counters that never expire, and bad counters.
func useCounters(ctx context.Context, t *testing.T, admin, client redis.UniversalClient) error {
	t.Helper()
	m := manager(t, client, lease.Options{Prefix: "fencepost:billing"})
	l, err := m.TryAcquire(ctx, "counter", time.Minute, nil)
	if err != nil {
		return err
	}
	if err := admin.Set(ctx, "fencepost:billing:{negative}:token", "-3", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.TryAcquire(ctx, "negative", time.Minute, nil); !errors.Is(err, lease.ErrBadKey) {
		return fmt.Errorf("a negative counter: %w", err)
	}
	return l.Release(ctx)
}

// until looks every millisecond until ctx ends: Redis notifies nobody about waiters.
func until(ctx context.Context, done func() bool) {
	for ctx.Err() == nil && !done() {
		<-time.After(time.Millisecond)
	}
}

func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	acl := documentedUser(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := connectAs(t, server.Addr(), acl)
	if err := useAll(ctx, t, testenv.RedisOn(t, server.URL()), client); err != nil {
		t.Errorf("with the documented rights: %v", err)
	}
	if err := client.Get(ctx, "fencepost:other:{r}:lease").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("another namespace's key: %v", err)
	}
	if err := client.Keys(ctx, "*").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Errorf("a command that is not needed: %v", err)
	}
	// The control: the server says that the scripts need each of the permissions.
	for _, right := range []string{
		"+set", "+get", "+incr", "+decr", "+del", "+exists", "+pttl", "+pexpire", "+persist",
		"+zadd", "+zrem", "+zrange", "+zrank", "+zscore", "+time",
	} {
		less := append(append([]string{}, acl...), "-"+right[1:])
		short, stop := context.WithCancel(ctx)
		admin, limited := testenv.RedisOn(t, server.URL()), connectAs(t, server.Addr(), less)
		seen := &rightsMissed{stop: stop}
		limited.AddHook(seen)
		if err := useAll(short, t, admin, limited); err == nil || !seen.any.Load() {
			t.Errorf("without %s no right was missed: the line asks for more than is needed; %v", right, err)
		}
		stop()
		if err := admin.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// rightsMissed cancels the calls in flight once the server has refused a command because of a missing permission.
type rightsMissed struct {
	any  atomic.Bool
	stop func()
}

func (r *rightsMissed) look(err error) error {
	// Inside a script Redis 6 and 7 say so in a text of their own.
	if redis.HasErrorPrefix(err, "NOPERM") || err != nil && strings.Contains(err.Error(), "can't run this command") {
		r.any.Store(true)
		r.stop()
	}
	return err
}

func (r *rightsMissed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *rightsMissed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return r.look(next(ctx, cmd)) }
}

func (r *rightsMissed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			_ = r.look(cmd.Err())
		}
		return err
	}
}

// Without permission to PUBLISH a release still succeeds, and waiters find out by themselves.
func TestAReleaseThatMayTellNobodyIsARelease(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	deny := "resetchannels"
	if !testenv.RedisAtLeast(t, testenv.RedisOn(t, server.URL()), "6.2") {
		deny = "-publish"
	}
	acl := append(documentedUser(t, server), deny)
	client := connectAs(t, server.Addr(), acl)
	m := manager(t, client, lease.Options{Prefix: "fencepost:billing", PollEvery: 10 * time.Millisecond})
	first, err := m.TryAcquire(t.Context(), "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := m.Acquire(t.Context(), "r", time.Minute, nil)
		if err == nil {
			err = l.Release(t.Context())
		}
		got <- err
	}()
	eventually(t, "a waiter", func() bool {
		return client.Exists(t.Context(), "fencepost:billing:{r}:queue").Val() == 1
	})
	for range 2 {
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
