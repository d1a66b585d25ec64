package lease_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// onSentinel is a bundle whose client asks sentinels for the primary.
func onSentinel(t *testing.T, s *services.Sentinel, opts lease.Options) bundle {
	t.Helper()
	b := bundle{rdb: testenv.SentinelClient(t, s, nil), prefix: strings.ReplaceAll(t.Name(), "/", ":")}
	opts.Prefix = b.prefix
	b.m = manager(t, b.rdb, opts)
	return b
}

// A real failover that loses leases, since the replica lagged. Redis has two holders then, with one token: a bare
// manager promises no more, which is why a Store claims. It says so as soon as the old holder asks, and those
// who wait for other leases go on.
func TestAFailoverThatLosesLeases(t *testing.T) {
	t.Parallel()
	s := testenv.Sentinel(t, nil)
	hook, lost := lostSignal()
	b := onSentinel(t, s, lease.Options{PollEvery: 20 * time.Millisecond, Hooks: lease.Hooks{Lost: hook}})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	kept := b.acquire(t, "kept", time.Minute, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	first := b.acquire(t, "r", time.Minute, nil)
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.HoldBack(ctx); err != nil {
		t.Fatal(err)
	}
	a := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	renewed := b.acquire(t, "renewed", time.Minute, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	other := onSentinel(t, s, lease.Options{})
	m := manager(t, other.rdb, lease.Options{Prefix: b.prefix, PollEvery: 20 * time.Millisecond})
	waited := make(chan *lease.Lease, 1)
	b.queueUp(ctx, t, m, func(l *lease.Lease, err error) {
		if err != nil {
			t.Errorf("waiting through the failover: %v", err)
		}
		waited <- l
	})
	if err := s.Primary.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	// The waiter's subscription went with the primary; back on another server, it looks.
	second := <-waited
	if second == nil {
		t.FailNow()
	}
	if err := s.Promoted(ctx); err != nil {
		t.Fatal(err)
	}
	if a.Err() != nil || second.Err() != nil || second.Token() != a.Token() {
		t.Errorf("tokens %d and %d; %v, %v: the failover lost nothing, and the Store's test shows nothing",
			a.Token(), second.Token(), a.Err(), second.Err())
	}
	eventually(t, "the old holder to be told", func() bool { return a.Renew(ctx, time.Minute) != nil && a.Err() != nil })
	wantReason(t, a.Err(), lease.ReasonTaken)
	eventually(t, "a holder that renews to be told", func() bool { return renewed.Err() != nil })
	wantReason(t, renewed.Err(), lease.ReasonExpired)
	eventually(t, "a lease that the replica had to be renewed", renewedSince(kept))
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
	for range 2 {
		if cause := <-lost; cause.Resource == "kept" {
			t.Errorf("the replica had it, and yet: %v", cause)
		}
	}
}

// A primary that only stood still comes back as one that has been deposed. What it granted in the meantime to
// those who had not heard is not renewed anywhere.
func TestADeposedPrimaryGrantsNothingThatLasts(t *testing.T) {
	t.Parallel()
	s := testenv.Sentinel(t, nil)
	b := onSentinel(t, s, lease.Options{PollEvery: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	a := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err := s.HoldBack(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Primary.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Promoted(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Primary.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	// A client that has not heard of the failover.
	old := redis.NewClient(&redis.Options{Addr: s.Primary.Addr(), MaxRetries: -1})
	defer func() { _ = old.Close() }()
	deaf := manager(t, old, lease.Options{Prefix: b.prefix})
	stray, err := deaf.TryAcquire(ctx, "stray", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err != nil {
		t.Fatalf("the deposed primary is no longer in the dark: %v", err)
	}
	rightful := b.acquire(t, "stray", time.Minute, nil)
	if rightful.Token() != stray.Token() {
		t.Errorf("tokens %d and %d", rightful.Token(), stray.Token())
	}
	// The replica had it, so it is ours on the new primary as well.
	eventually(t, "a renewal on the new primary", func() bool { return a.Renew(ctx, time.Minute) == nil })
	if err := a.Release(ctx); err != nil {
		t.Error(err)
	}
}
