package lease_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// proxied is a bundle whose manager reaches Redis through a proxy; rdb connects directly.
type proxied struct {
	bundle
	proxy  *faults.Proxy
	client *redis.Client // through the proxy
}

func setupProxied(t *testing.T, opts lease.Options, client func(*redis.Options)) proxied {
	t.Helper()
	p := proxied{bundle: bundle{rdb: testenv.Redis(t), prefix: testenv.Prefix(t)}}
	url := testenv.RedisURL(t)
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	p.proxy = faults.NewProxy(t, o.Addr)
	o.Addr = p.proxy.Addr()
	if client != nil {
		client(o)
	}
	p.client = redis.NewClient(o)
	t.Cleanup(func() { _ = p.client.Close() })
	opts.Prefix = p.prefix
	p.m = manager(t, p.client, opts)
	return p
}

// C03: the reply to an acquire is lost after Redis has granted the lease, and go-redis retries by itself, as it does by
// default. The lease must come back, with the token that was issued first.
func TestCase03_ALostReplyIsNotARival(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	_, counterKey := lease.KeysOf(p.prefix, "r")
	warm := p.acquire(t, "warm", time.Minute, nil) // loads the script
	if warm.Token() != 1 {
		t.Fatal(warm.Token())
	}
	dropped := p.proxy.DropNextReply(faults.Containing(p.prefix))
	l := p.acquire(t, "r", time.Minute, nil)
	within(t, "the lost reply", time.Second, dropped)
	if counter := p.rdb.Get(t.Context(), counterKey).Val(); l.Token() != 1 || counter != "1" {
		t.Errorf("token %d, counter %s: the retry minted another", l.Token(), counter)
	}
	if err := l.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("the lease is not usable: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	// The control: under the same fault the common recipe takes itself for a rival.
	if granted := setNXThroughALostReply(t, p); granted {
		t.Error("SET NX through a lost reply reported success: the fault did not strike")
	}
}

func setNXThroughALostReply(t *testing.T, p proxied) bool {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: p.proxy.Addr()})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	key := p.prefix + "control"
	dropped := p.proxy.DropNextReply(faults.Containing(key))
	granted, err := rdb.SetNX(t.Context(), key, "me", time.Minute).Result()
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the lost reply", time.Second, dropped)
	return granted
}

// C03 without the client's own retries: the caller gets an error, and what was granted is gone.
func TestCase03_AnAcquireThatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	leaseKey, counterKey := lease.KeysOf(p.prefix, "r")
	p.acquire(t, "warm", time.Minute, nil)
	dropped := p.proxy.DropNextReply(faults.Containing(p.prefix))
	_, err := p.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	within(t, "the lost reply", time.Second, dropped)
	wantErr(t, err, lease.ErrUnavailable)
	if p.rdb.Get(t.Context(), counterKey).Val() != "1" {
		t.Fatal("the request did not reach Redis: the fault did not strike")
	}
	if p.exists(t, leaseKey) {
		t.Error("the lease that nobody has is still there")
	}
	again := p.acquire(t, "r", time.Minute, nil)
	if again.Token() != 2 {
		t.Errorf("token %d after a gap of one", again.Token())
	}
}

func TestCase03_ALostReplyToAReleaseIsHarmless(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	l := p.acquire(t, "r", time.Minute, nil)
	dropped := p.proxy.DropNextReply(faults.Containing(l.Nonce().Hex()))
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	within(t, "the lost reply", time.Second, dropped)
	if p.exists(t, leaseKey) {
		t.Error("the lease is still there")
	}
}

func TestCase16_AnEmptyScriptCacheReachesNobody(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t) // SCRIPT FLUSH is the whole server's
	rdb := testenv.RedisOn(t, server.URL())
	b := bundle{rdb: rdb, prefix: "p", m: manager(t, rdb, lease.Options{Prefix: "p", PollEvery: time.Millisecond})}
	flush := func(ctx context.Context) {
		if err := rdb.ScriptFlush(ctx).Err(); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	l := b.acquire(t, "r", time.Minute, nil)
	flush(t.Context())
	if err := l.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("renew: %v", err)
	}
	flush(t.Context())
	if _, err := l.Reissue(t.Context(), 5); err != nil {
		t.Errorf("reissue: %v", err)
	}
	flush(t.Context())
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	const workers, rounds = 8, 25
	stop, flushed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(flushed)
		for {
			select {
			case <-stop:
				return
			default:
				flush(t.Context())
			}
		}
	}()
	seen := workThrough(t, b, workers, rounds)
	close(stop)
	<-flushed
	_, counterKey := lease.KeysOf("p", "loop")
	if counter := rdb.Get(t.Context(), counterKey).Val(); len(seen) != workers*rounds || counter != "200" {
		t.Errorf("%d tokens for %d grants, counter at %s", len(seen), workers*rounds, counter)
	}
}

// workThrough makes several workers take the same lease in turn and returns the tokens they had.
func workThrough(t *testing.T, b bundle, workers, rounds int) map[token.Token]bool {
	t.Helper()
	var mu sync.Mutex
	seen := make(map[token.Token]bool)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				l, err := b.m.Acquire(t.Context(), "loop", time.Minute, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen[l.Token()] = true
				mu.Unlock()
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return seen
}
