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

// unseenGrants issues tokens that a replica does not see, so that it issues them again once it takes over, even if an
// attempt of a waiter is given up meanwhile, which costs a token.
func (b bundle) unseenGrants(t *testing.T) {
	t.Helper()
	for range 20 {
		if err := b.acquire(t, "r", time.Minute, nil).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A real failover that loses leases, because the replica lagged. Redis then has two holders, and the same tokens twice:
// a bare manager promises no more, which is why a Store claims. The old holder learns of it as soon as it asks, and
// those that wait for other leases continue.
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
	b.unseenGrants(t)
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
	// The waiter's subscription died with the primary; once back on another server, the waiter looks.
	second := <-waited
	if second == nil {
		t.FailNow()
	}
	if err := s.Promoted(ctx); err != nil {
		t.Fatal(err)
	}
	if a.Err() != nil || second.Err() != nil || second.Token() > a.Token() {
		t.Errorf("tokens %d and %d; %v, %v: the failover lost nothing, and the Store's test shows nothing",
			a.Token(), second.Token(), a.Err(), second.Err())
	}
	eventually(t, "the old holder to be told", func() bool {
		return a.Renew(ctx, time.Minute) != nil && a.Err() != nil
	})
	wantReason(t, a.Err(), lease.ReasonTaken)
	eventually(t, "a holder that renews to be told", func() bool { return renewed.Err() != nil })
	wantReason(t, renewed.Err(), lease.ReasonGone)
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

// A primary that was only paused comes back deposed. Leases that it granted in the meantime, to clients that had not
// noticed, are not renewed anywhere.
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
	// This client has not noticed the failover.
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
