package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// ownBundle is a bundle on a server that the test may harm.
func ownBundle(t *testing.T, server *services.Redis, opts lease.Options) bundle {
	t.Helper()
	b := bundle{rdb: testenv.RedisOn(t, server.URL()), prefix: "own"}
	opts.Prefix = b.prefix
	b.m = manager(t, b.rdb, opts)
	return b
}

// refusal is a way in which a server answers and refuses to work.
type refusal struct {
	code       string // the first word of the answer
	on, off    []any  // commands that begin and end it
	stillWorks bool   // renewing and releasing still work
}

func refusals() map[string]refusal {
	return map[string]refusal{
		"a: a replica": {
			code: "READONLY", on: []any{"REPLICAOF", "127.0.0.1", "1"}, off: []any{"REPLICAOF", "NO", "ONE"},
		},
		"b: too few replicas": {
			code: "NOREPLICAS",
			on:   []any{"CONFIG", "SET", "min-replicas-to-write", "1"},
			off:  []any{"CONFIG", "SET", "min-replicas-to-write", "0"},
		},
		"c: out of memory": {
			code:       "OOM",
			on:         []any{"CONFIG", "SET", "maxmemory", "1"},
			off:        []any{"CONFIG", "SET", "maxmemory", "0"},
			stillWorks: true,
		},
	}
}

// C17 a to c: the server answers and refuses. That is neither a holder nor the loss of a lease, and once it is over
// everything continues.
func TestCase17_ARefusalOfTheServerIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, r := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := ownBundle(
				t,
				testenv.OwnRedis(t, "--maxmemory-policy", "noeviction"),
				lease.Options{PollEvery: 5 * time.Millisecond},
			)
			held := b.acquire(t, "held", time.Minute, &lease.AcquireOptions{NoRenewal: true})
			renewed := b.acquire(t, "renewed", 20*time.Second, &lease.AcquireOptions{RenewEvery: 20 * time.Millisecond})
			b.do(t, r.on...)
			if r.code == "NOREPLICAS" && !testenv.RedisAtLeast(t, b.rdb, "7.0") {
				// As docs/operating.md says, it does not apply to scripts there.
				b.acquire(t, "r", time.Minute, nil)
				return
			}
			_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
			wantRefusal(t, "acquire", err, r.code)
			gaveUp, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := b.m.Acquire(gaveUp, "given up", time.Minute, nil)
				ended <- err
			}()
			got := b.waiting(t, "r")
			r.holder(t, held)
			b.untilRefusedOften(t)
			cancel()
			if err = <-ended; errors.Is(err, lease.ErrHeld) {
				t.Errorf("an acquire that waited took the refusal for a holder: %v", err)
			}
			wantErr(t, err, lease.ErrUnavailable, context.Canceled)
			notYet(t, got)

			b.do(t, r.off...)
			if l := <-got; l == nil || l.Release(t.Context()) != nil {
				t.Error("the waiting acquire did not come to its end")
			}
			if err := held.Release(t.Context()); err != nil {
				t.Errorf("releasing again: %v", err)
			}
			if b.exists(t, "own:{held}:lease") {
				t.Error("the lease is still there")
			}
			eventually(t, "a renewal after the refusal", renewedSince(renewed))
		})
	}
}

// holder renews and releases while the server refuses.
func (r refusal) holder(t *testing.T, held *lease.Lease) {
	t.Helper()
	renewed := held.Renew(t.Context(), time.Minute)
	if r.stillWorks {
		if err := errors.Join(renewed, held.Release(t.Context())); err != nil {
			t.Errorf("a holder needs no memory, and yet: %v", err)
		}
		return
	}
	wantRefusal(t, "renew", renewed, r.code)
	if held.Err() != nil {
		t.Errorf("a refused renewal cost the lease: %v", held.Err())
	}
	wantRefusal(t, "release", held.Release(t.Context()), r.code)
}

func wantRefusal(t *testing.T, what string, err error, code string) {
	t.Helper()
	if !errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrLost) ||
		!lease.HasCode(err, code) {
		t.Errorf("%s: got error %v, want only unavailable, for %s", what, err, code)
	}
}

func (b bundle) do(t *testing.T, command ...any) {
	t.Helper()
	if err := b.rdb.Do(t.Context(), command...).Err(); err != nil {
		t.Fatal(err)
	}
}

// waiting starts a waiting acquire and passes on its outcome; nil for an error.
func (b bundle) waiting(t *testing.T, resource string) <-chan *lease.Lease {
	t.Helper()
	got := make(chan *lease.Lease, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	go func() {
		l, err := b.m.Acquire(ctx, resource, time.Minute, nil)
		if err != nil {
			t.Errorf("waiting for %q: %v", resource, err)
		}
		got <- l
	}()
	return got
}

func notYet(t *testing.T, got <-chan *lease.Lease) {
	t.Helper()
	select {
	case l := <-got:
		t.Errorf("granted too soon: %v", l)
	default:
	}
}

// untilRefusedOften waits until the server has refused several more scripts.
func (b bundle) untilRefusedOften(t *testing.T) {
	t.Helper()
	counts := func() string {
		text, err := b.rdb.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ = strings.Cut(text, "cmdstat_evalsha:")
		text, _, _ = strings.Cut(text, "\n")
		return text
	}
	before := counts()
	eventually(t, "more refusals", func() bool { return counts() != before })
}

// C17 d: the server stops and comes back empty. Its absence is unavailability; the earlier lease is lost, and the
// waiter is served.
func TestCase17d_AServerThatComesBackEmpty(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	hook, lost := lostSignal()
	b := ownBundle(t, server, lease.Options{PollEvery: 5 * time.Millisecond, Hooks: lease.Hooks{Lost: hook}})
	held := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true, Floor: 99})
	renewed := b.acquire(t, "renewed", 20*time.Second, &lease.AcquireOptions{RenewEvery: 20 * time.Millisecond})
	got := b.waiting(t, "r")
	eventually(t, "the waiter to queue up", func() bool { return b.exists(t, "own:{r}:queue") })
	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := b.m.TryAcquire(t.Context(), "other", time.Minute, nil)
	if wantErr(t, err, lease.ErrUnavailable); errors.Is(err, lease.ErrHeld) {
		t.Errorf("a server that is gone was taken for a holder: %v", err)
	}
	wantErr(t, held.Renew(t.Context(), time.Minute), lease.ErrUnavailable)
	if held.Err() != nil {
		t.Errorf("a failed renewal cost the lease: %v", held.Err())
	}
	notYet(t, got)
	if err := server.StartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := <-got
	if second == nil {
		t.FailNow()
	}
	if second.Token() >= held.Token() { // which is why a lease alone is no protection
		t.Errorf("token %d from an empty server, after %d", second.Token(), held.Token())
	}
	wantErr(t, held.Renew(t.Context(), time.Minute), lease.ErrLost)
	wantReason(t, held.Err(), lease.ReasonTaken)
	for range 2 {
		if cause := <-lost; cause.Resource == "renewed" {
			wantReason(t, cause, lease.ReasonGone)
		}
	}
	wantErr(t, renewed.Release(t.Context()), lease.ErrLost)
	wantErr(t, held.Release(t.Context()), lease.ErrLost)
	if second.Err() != nil || !b.exists(t, "own:{r}:lease") {
		t.Errorf("the release of a lost lease touched its successor: %v", second.Err())
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// C17: a server that is reading its data answers LOADING.
func TestCase17_AServerThatIsLoading(t *testing.T) {
	t.Parallel()
	// It pauses for each of its keys, long enough to answer between them.
	server := testenv.OwnRedis(t, "--key-load-delay", "400000", "--rdbcompression", "no")
	// This client does not itself wait for the server to come back.
	once := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = once.Close() })
	impatient := manager(t, once, lease.Options{Prefix: "own"})
	b := ownBundle(t, server, lease.Options{PollEvery: 5 * time.Millisecond})
	held := b.acquire(t, "held", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
		b.do(t, "SET", key, strings.Repeat("x", 3<<20))
	}
	b.do(t, "SAVE")
	ctx := t.Context()
	if err := server.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- server.Start(ctx) }()
	var err error
	eventually(t, "a server that is loading", func() bool {
		_, err = impatient.TryAcquire(ctx, "r", time.Minute, nil)
		return redis.HasErrorPrefix(err, "LOADING")
	})
	wantRefusal(t, "acquire", err, "LOADING")
	got := b.waiting(t, "r")
	if l := <-got; l == nil || l.Release(ctx) != nil {
		t.Error("the waiting acquire did not come to its end")
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := held.Renew(ctx, time.Minute); err != nil {
		t.Errorf("the lease came back with the data, and yet: %v", err)
	}
}

// Without memory a release still hands the lease on: the next waiter is told, and the refusal does not make the server
// forget it.
func TestCase17c_AReleaseWithoutMemoryHandsOn(t *testing.T) {
	t.Parallel()
	b := ownBundle(t, testenv.OwnRedis(t), lease.Options{PollEvery: 5 * time.Millisecond})
	held := b.acquire(t, "r", time.Minute, nil)
	got := b.waiting(t, "r")
	eventually(t, "the waiter to queue up", func() bool { return b.exists(t, "own:{r}:queue") })
	b.do(t, "CONFIG", "SET", "maxmemory", "1")
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	b.do(t, "CONFIG", "SET", "maxmemory", "0")
	select {
	case l := <-got:
		if l == nil || l.Release(t.Context()) != nil {
			t.Error("no lease")
		}
	case <-time.After(5 * time.Second):
		t.Error("the waiter was forgotten")
	}
}

// The protocol on Valkey, if it is installed.
func TestValkeyGrantsLeasesToo(t *testing.T) {
	t.Parallel()
	server := testenv.Valkey(t)
	if server == nil {
		return
	}
	protocol(t, ownBundle(t, server, lease.Options{}), "r")
}

// protocol does everything once that can be done with a lease.
func protocol(t *testing.T, b bundle, resource string) {
	t.Helper()
	ctx := t.Context()
	l := b.acquire(t, resource, time.Minute, nil)
	_, err := b.m.TryAcquire(ctx, resource, time.Minute, nil)
	wantErr(t, err, lease.ErrHeld)
	if err := l.Renew(ctx, 2*time.Minute); err != nil {
		t.Errorf("%q: %v", resource, err)
	}
	if tok, err := l.Reissue(ctx, l.Token()+10); err != nil || tok != 12 {
		t.Errorf("%q: reissued %d: %v", resource, tok, err)
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("%q: %v", resource, err)
	}
	next := b.acquire(t, resource, time.Minute, nil)
	if next.Token() != 13 {
		t.Errorf("%q: token %d", resource, next.Token())
	}
	if err := next.Release(ctx); err != nil {
		t.Errorf("%q: %v", resource, err)
	}
}
