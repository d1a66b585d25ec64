package lease_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// C09 a: nothing that an overdue holder does touches its successor's lease.
func TestCase09a_AnOverdueHolderTouchesNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{PollEvery: 5 * time.Millisecond})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	a := b.acquire(t, "r", 100*time.Millisecond, &lease.AcquireOptions{NoRenewal: true})
	successor := b.acquire(t, "r", time.Minute, nil)
	before := b.rdb.Get(t.Context(), leaseKey).Val()
	wantErr(t, a.Release(t.Context()), lease.ErrLost)
	wantErr(t, a.Renew(t.Context(), time.Hour), lease.ErrLost)
	wantErr(t, a.Release(t.Context()), lease.ErrLost)
	if b.rdb.Get(t.Context(), leaseKey).Val() != before || b.pttl(t, leaseKey) > time.Minute || successor.Err() != nil {
		t.Error("the successor's lease was touched")
	}
	// The control: deleting by name, as an unlock without a nonce does.
	if b.rdb.Del(t.Context(), leaseKey).Val() != 1 {
		t.Error("the control deleted nothing")
	}
}

// C09 b: an old handle's second release, after its first reply was lost and the same process has the
// lease again.
func TestCase09b_AnOldHandleDoesNotReleaseANewLease(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	old := p.acquire(t, "r", time.Minute, nil)
	dropped := p.proxy.DropNextReply(faults.Containing(old.Nonce().Hex()))
	wantErr(t, old.Release(t.Context()), lease.ErrUnavailable)
	within(t, "the lost reply", time.Second, dropped)
	renewed := p.acquire(t, "r", time.Minute, nil)
	wantErr(t, old.Release(t.Context()), lease.ErrLost)
	if !p.exists(t, leaseKey) || renewed.Err() != nil {
		t.Error("the old handle removed the new lease")
	}
}

func TestReleaseTwiceIsANoOp(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	l := b.acquire(t, "r", time.Minute, nil)
	for range 3 {
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	successor := b.acquire(t, "r", time.Minute, nil)
	if err := l.Release(t.Context()); err != nil || successor.Renew(t.Context(), time.Minute) != nil {
		t.Errorf("a further release: %v, successor %v", err, successor.Err())
	}
}

func TestReleaseOfAKeyThatWentBeforeItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", time.Minute, nil)
	if err := b.rdb.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("key gone before the deadline: %v", err)
	}
}

// C09 c: owner values are random per grant, and nothing can set them to a constant.
func TestCase09c_NoncesAreDrawnPerGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	seen := make(map[token.Nonce]bool)
	for range 1000 {
		l := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{Label: "the same"})
		if seen[l.Nonce()] {
			t.Fatal("a nonce came twice")
		}
		seen[l.Nonce()] = true
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// C15: the caller's context has ended, and the lease is released anyway.
func TestCase15_ReleaseOnADeadContext(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	ctx, cancel := context.WithCancel(t.Context())
	l, err := b.m.Acquire(ctx, "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	if b.exists(t, leaseKey) {
		t.Error("the lease is still there")
	}
}

func TestAReleaseThatCouldNotBeCarriedOutSaysSoAndCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	p := setupProxied(
		t,
		lease.Options{ReleaseTimeout: 200 * time.Millisecond},
		func(o *redis.Options) { o.MaxRetries = -1 },
	)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	l := p.acquire(t, "r", time.Minute, nil)
	p.proxy.Cut()
	wantErr(t, l.Release(t.Context()), lease.ErrUnavailable)
	wantErr(t, l.Err(), lease.ErrReleased)
	if !p.exists(t, leaseKey) {
		t.Fatal("the cut did not keep the release from Redis")
	}
	p.proxy.Heal()
	eventually(t, "a release once Redis is back", func() bool { return l.Release(t.Context()) == nil })
	if p.exists(t, leaseKey) {
		t.Error("the lease is still there")
	}
}

// C26: renewals race with the release; none is sent after it has returned. The key would not be
// created, so the test looks at what Redis was asked to do.
func TestCase26_NoRenewalAfterRelease(t *testing.T) {
	t.Parallel()
	spy := &spyHook{}
	b := setup(t, lease.Options{})
	b.rdb.AddHook(spy)
	for range 50 {
		l := b.acquire(t, "r", 10*time.Second, &lease.AcquireOptions{RenewEvery: time.Millisecond})
		eventually(t, "a renewal", func() bool { return spy.count() > 0 })
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := spy.count()
		// Another command's round trip gives a due renewal the time to go wrong.
		b.exists(t, "x")
		if after := spy.count(); after != at {
			t.Fatalf("%d calls after release had returned", after-at)
		}
		spy.reset()
	}
}

// spyHook counts the script calls that a client sends.
type spyHook struct {
	mu sync.Mutex
	n  int
}

func (s *spyHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *spyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *spyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			s.mu.Lock()
			s.n++
			s.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}

func (s *spyHook) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *spyHook) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n = 0
}

func TestCase26_ALossCallbackMayReleaseTheLease(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	b := setup(t, lease.Options{Hooks: lease.Hooks{
		Lost: func(l *lease.Lease, _ *lease.LostError) { done <- l.Release(context.Background()) },
	}})
	b.acquire(t, "r", 50*time.Millisecond, &lease.AcquireOptions{NoRenewal: true})
	wantErr(t, <-done, lease.ErrLost)
}
