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

func TestMain(m *testing.M) { testenv.MainWithExamples(m, 5) }

// bundle is the fixture of one test: a manager on a real Redis, under its own prefix.
type bundle struct {
	rdb    redis.UniversalClient
	prefix string
	m      *lease.Manager
}

func setup(t *testing.T, opts lease.Options) bundle {
	t.Helper()
	b := bundle{rdb: testenv.Redis(t), prefix: testenv.Prefix(t)}
	opts.Prefix = b.prefix
	b.m = manager(t, b.rdb, opts)
	return b
}

func manager(t *testing.T, rdb redis.UniversalClient, opts lease.Options) *lease.Manager {
	t.Helper()
	m, err := lease.NewManager(rdb, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (b bundle) acquire(t *testing.T, resource string, ttl time.Duration, opts *lease.AcquireOptions) *lease.Lease {
	t.Helper()
	l, err := b.m.Acquire(t.Context(), resource, ttl, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release(context.Background()) }) // no lease outlives its test
	return l
}

// pttl returns the remaining time of a key, according to Redis.
func (b bundle) pttl(t *testing.T, key string) time.Duration {
	t.Helper()
	d, err := b.rdb.PTTL(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (b bundle) exists(t *testing.T, key string) bool {
	t.Helper()
	n, err := b.rdb.Exists(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// eventually waits for something that Redis or another goroutine does in its own time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s did not come about", what)
		}
	}
}

// renewedSince reports whether a lease has been renewed since: it then has more time left than has passed. (Requiring
// more than it had would depend on when the test looks.)
func renewedSince(l *lease.Lease) func() bool {
	left, began := l.Remaining(), time.Now()
	return func() bool { return l.Remaining() > left-time.Since(began)+5*time.Millisecond }
}

func within(t *testing.T, what string, d time.Duration, done <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("%s did not come about within %v", what, d)
	}
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

func wantReason(t *testing.T, err error, want lease.Reason) {
	t.Helper()
	var lost *lease.LostError
	if !errors.As(err, &lost) || lost.Reason != want {
		t.Errorf("got error %v, want a loss for the reason %q", err, want)
	}
}
