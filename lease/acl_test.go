package lease_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// documentedUser returns the words of the ACL line in docs/operating.md.
func documentedUser(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER billing .*$`).FindString(string(text))
	if line == "" {
		t.Fatal("docs/operating.md does not say which rights are needed")
	}
	return strings.Fields(line)
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

// useAll goes through everything that a manager does, waiting and handing on included. The admin sees who waits.
func useAll(ctx context.Context, t *testing.T, admin, client redis.UniversalClient) error {
	t.Helper()
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
	// Whoever of the two came first, one gives up and the other is told: it alone is left to be handed the lease, and the
	// last release meets an empty queue.
	waiting := func() int64 { return admin.ZCard(ctx, "fencepost:billing:{r}:queue").Val() }
	until(ctx, func() bool { return waiting() == 2 || lease.IsClosed(gaveUp) }) // at once, for want of a right
	quit()
	<-gaveUp
	until(ctx, func() bool { return waiting() <= 1 })
	if err := first.Release(ctx); err != nil {
		return err
	}
	return <-third
}

// until looks every millisecond, for as long as ctx lasts: Redis tells nobody who waits.
func until(ctx context.Context, done func() bool) {
	for ctx.Err() == nil && !done() {
		<-time.After(time.Millisecond)
	}
}

func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	acl := documentedUser(t)
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
	// The control: each of the rights that scripts use is needed.
	for _, right := range []string{"+set", "+get", "+incr", "+del", "+exists", "+pexpire", "+zadd", "+zpopmin"} {
		less := append(append([]string{}, acl...), "-"+right[1:])
		short, stop := context.WithTimeout(ctx, time.Second)
		admin := testenv.RedisOn(t, server.URL())
		if err := useAll(short, t, admin, connectAs(t, server.Addr(), less)); err == nil {
			t.Errorf("without %s all went well: the line asks for more than is needed", right)
		}
		stop()
		if err := admin.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without the right to pass messages on a release has done its part all the same, and waiters find out by themselves.
func TestAReleaseThatMayTellNobodyIsARelease(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	acl := append(documentedUser(t), "resetchannels")
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
	eventually(t, "a waiter", func() bool { return client.Exists(t.Context(), "fencepost:billing:{r}:queue").Val() == 1 })
	for range 2 {
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
