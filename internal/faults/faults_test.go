package faults_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bundle is a proxy in front of a real Redis: direct bypasses the proxy; through goes through it and tries everything
// once.
type bundle struct {
	proxy           *faults.Proxy
	direct, through redis.UniversalClient
	key             string
}

func setup(t *testing.T) bundle {
	t.Helper()
	address := testenv.RedisURL(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := faults.NewProxy(t, u.Host)
	o, err := redis.ParseURL(proxy.URL(t, address))
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	through := redis.NewClient(o)
	t.Cleanup(func() { _ = through.Close() })
	return bundle{proxy: proxy, direct: testenv.Redis(t), through: through, key: testenv.Prefix(t) + "n"}
}

func (b bundle) count(t *testing.T) int {
	t.Helper()
	n, err := b.direct.Get(t.Context(), b.key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

func (b bundle) incr(t *testing.T) error {
	t.Helper()
	return b.through.Incr(t.Context(), b.key).Err()
}

func happened(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the drop did not happen")
	}
}

func mustWork(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want no error", err)
	}
}

func mustFail(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("got no error, want one")
	}
}

// TestDropNextReply: the order is carried out, once, and its confirmation is lost.
func TestDropNextReply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// The connection's history must not count as the next request.
	mustWork(t, b.incr(t))
	done := b.proxy.DropNextReply(faults.Containing("incr"))
	mustWork(t, b.through.Ping(t.Context()).Err())
	mustFail(t, b.incr(t))
	happened(t, done)
	if n := b.count(t); n != 2 {
		t.Errorf("the server counts %d, want 2", n)
	}
	mustWork(t, b.incr(t))
}

// TestDropNextReplyOnANewConnection: the client library's greeting passes.
func TestDropNextReplyOnANewConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	done := b.proxy.DropNextReply(faults.Containing(b.key))
	mustFail(t, b.incr(t))
	happened(t, done)
	if n := b.count(t); n != 1 {
		t.Errorf("the server counts %d, want 1", n)
	}
}

// TestDropNextRequest: the server never sees it.
func TestDropNextRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mustWork(t, b.through.Ping(t.Context()).Err())
	done := b.proxy.DropNextRequest(nil)
	mustFail(t, b.incr(t))
	happened(t, done)
	if n := b.count(t); n != 0 {
		t.Errorf("the server counts %d, want 0", n)
	}
	mustWork(t, b.incr(t))
}

func TestCutAndHeal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mustWork(t, b.incr(t))
	b.proxy.Cut()
	mustFail(t, b.incr(t))
	mustFail(t, b.incr(t))
	b.proxy.Heal()
	mustWork(t, b.incr(t))
	if n := b.count(t); n != 2 {
		t.Errorf("the server counts %d, want 2", n)
	}
}

// TestHangKeepsConnectionAndBytes: commands sent during the hang are carried out after it, on the same connection.
func TestHangKeepsConnectionAndBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.through.(*redis.Client).Conn()
	defer func() { _ = conn.Close() }()
	before, err := conn.ClientID(t.Context()).Result()
	mustWork(t, err)

	b.proxy.Hang()
	result := make(chan error, 1)
	go func() { result <- conn.Incr(context.WithoutCancel(t.Context()), b.key).Err() }()
	select {
	case err := <-result:
		t.Fatalf("got an answer during the hang: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if n := b.count(t); n != 0 {
		t.Errorf("during the hang the server counts %d, want 0", n)
	}
	b.proxy.Resume()
	mustWork(t, <-result)
	after, err := conn.ClientID(t.Context()).Result()
	mustWork(t, err)
	if before != after {
		t.Error("the connection did not survive the hang")
	}
}

// TestHangEndsWithTheTest: a test that forgets Resume must not block.
func TestHangEndsWithTheTest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mustWork(t, b.incr(t))
	b.proxy.Hang()
	b.proxy.Hang() // a second call does nothing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	mustFail(t, b.through.Incr(ctx, b.key).Err())
}

func TestLatency(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mustWork(t, b.incr(t))
	const delay = 60 * time.Millisecond
	b.proxy.Latency(delay)
	began := time.Now()
	mustWork(t, b.incr(t))
	if took := time.Since(began); took < delay {
		t.Errorf("took %v, want at least %v", took, delay)
	}
}

// TestCutOnce: a request in flight ends, even if the proxy delays it; the next connection works.
func TestCutOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mustWork(t, b.incr(t))
	b.proxy.Latency(time.Hour)
	underWay := make(chan struct{})
	b.proxy.DropNextRequest(func([]byte) bool {
		close(underWay)
		return false
	})
	result := make(chan error, 1)
	go func() { result <- b.incr(t) }()
	<-underWay
	b.proxy.CutOnce()
	mustFail(t, <-result)
	b.proxy.Heal()
	mustWork(t, b.incr(t))
	if n := b.count(t); n != 2 {
		t.Errorf("the server counts %d, want 2", n)
	}
}

// TestNoServer: a proxy without a server resets its clients.
func TestNoServer(t *testing.T) {
	t.Parallel()
	proxy := faults.NewProxy(t, "127.0.0.1:1")
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	mustFail(t, c.Ping(t.Context()).Err())
}

// A reply that is held back arrives whole once it is released; other connections continue meanwhile.
func TestHoldNextReply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held, letGo := b.proxy.HoldNextReply(faults.Containing("incr"))
	answer := make(chan error, 1)
	go func() { answer <- b.incr(t) }()
	happened(t, held)
	if n := b.count(t); n != 1 {
		t.Errorf("the server carried %d orders out, want 1", n)
	}
	if err := b.through.Get(t.Context(), b.key).Err(); err != nil {
		t.Errorf("another connection: %v", err)
	}
	select {
	case err := <-answer:
		t.Fatalf("the answer came before it was let go: %v", err)
	default:
	}
	letGo()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}
