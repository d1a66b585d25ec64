package lease_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// C14: a TTL out of range is refused before any command is sent, by acquire and renew alike.
func TestCase14_TTLsOutOfRangeAreRefusedBeforeAnyTraffic(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	held := b.acquire(t, "held", time.Minute, nil)
	spy := &spyHook{}
	b.rdb.AddHook(spy)
	for _, ttl := range []time.Duration{
		0, 1, 500 * time.Microsecond, 999_999, 1500 * time.Microsecond, -time.Second, math.MinInt64,
		lease.MinTTL - 1, lease.MaxTTL + 1, math.MaxInt64,
	} {
		for _, opts := range []*lease.AcquireOptions{nil, {NoRenewal: true}} {
			_, err := b.m.TryAcquire(t.Context(), "r", ttl, opts)
			wantErr(t, err, lease.ErrInvalid)
			_, err = b.m.Acquire(t.Context(), "r", ttl, opts)
			wantErr(t, err, lease.ErrInvalid)
		}
		wantErr(t, held.Renew(t.Context(), ttl), lease.ErrInvalid)
	}
	if spy.count() != 0 {
		t.Errorf("%d scripts were sent", spy.count())
	}
	if held.Err() != nil {
		t.Errorf("a refused renewal cost the lease: %v", held.Err())
	}
}

func TestCase14_DurationsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		lease.MinTTL:                   10,
		lease.MinTTL + 1:               11,
		10*time.Second + 999_999:       10_001,
		lease.MaxTTL:                   86_400_000,
		lease.MaxTTL - time.Nanosecond: 86_400_000,
	} {
		if got := lease.Milliseconds(d); got != want {
			t.Errorf("%v is sent as %d ms, want %d", d, got, want)
		}
	}
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", time.Hour, &lease.AcquireOptions{NoRenewal: true})
	if err := l.Renew(t.Context(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if left := b.pttl(t, leaseKey); left > 10*time.Second || left < 9*time.Second {
		t.Errorf("renewed to %v", left)
	}
}

// C14: waiting for a lease key without a TTL would never end.
func TestCase14_AKeyThatIsNotOursIsReportedAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{PollEvery: time.Millisecond})
	ctx := t.Context()
	for name, plant := range map[string]func(leaseKey, counterKey string) error{
		"no TTL": func(leaseKey, _ string) error {
			return b.rdb.Set(ctx, leaseKey, token.NewNonce().Hex()+" 5 somebody", 0).Err()
		},
		"foreign text": func(leaseKey, _ string) error {
			return b.rdb.Set(ctx, leaseKey, "locked", time.Minute).Err()
		},
		"foreign type": func(leaseKey, _ string) error {
			return b.rdb.HSet(ctx, leaseKey, "owner", "me").Err()
		},
		"counter not a number": func(_, counterKey string) error {
			return b.rdb.Set(ctx, counterKey, "x1", 0).Err()
		},
		"counter negative": func(_, counterKey string) error {
			return b.rdb.Set(ctx, counterKey, "-5", 0).Err()
		},
		"counter of another type": func(_, counterKey string) error { return b.rdb.LPush(ctx, counterKey, "1").Err() },
		"counter at its maximum": func(_, counterKey string) error {
			return b.rdb.Set(ctx, counterKey, token.Max.String(), 0).Err()
		},
		"counter beyond": func(_, counterKey string) error {
			return b.rdb.Set(ctx, counterKey, "9223372036854775808", 0).Err()
		},
	} {
		leaseKey, counterKey := lease.KeysOf(b.prefix, name)
		if err := plant(leaseKey, counterKey); err != nil {
			t.Fatal(err)
		}
		before := b.rdb.Exists(ctx, leaseKey).Val()
		_, err := b.m.Acquire(ctx, name, time.Minute, nil) // would hang if it waited
		var bad *lease.BadKeyError
		if !errors.As(err, &bad) || errors.Is(err, lease.ErrHeld) {
			t.Errorf("%s: got %v", name, err)
		}
		wantErr(t, err, lease.ErrBadKey, lease.ErrUnavailable)
		if b.rdb.Exists(ctx, leaseKey).Val() != before {
			t.Errorf("%s: the lease key came or went", name)
		}
	}
}

func TestCase26_SettingsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl = time.Second
	for _, every := range []time.Duration{
		-1, -time.Second, ttl, 2 * ttl, ttl - lease.DriftMargin(ttl),
		math.MinInt64, math.MaxInt64,
	} {
		_, err := b.m.TryAcquire(t.Context(), "r", ttl, &lease.AcquireOptions{RenewEvery: every})
		wantErr(t, err, lease.ErrInvalid)
	}
	for _, opts := range []lease.Options{
		{CounterIdle: time.Hour}, {CounterIdle: -1}, {PollEvery: -1}, {PollEvery: 1}, {ReleaseTimeout: -1},
	} {
		_, err := lease.NewManager(b.rdb, &opts)
		wantErr(t, err, lease.ErrInvalid)
	}
	for _, floor := range []token.Token{-1, token.Max} {
		_, err := b.m.TryAcquire(t.Context(), "r", ttl, &lease.AcquireOptions{Floor: floor})
		wantErr(t, err, lease.ErrInvalid)
	}
	l := b.acquire(t, "short", 100*time.Millisecond, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	wantErr(t, l.Renew(t.Context(), 40*time.Millisecond), lease.ErrInvalid) // would end before the next renewal
}

func TestCase26_TheAcquireContextBoundsAcquiringOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	const ttl = 2 * time.Second
	l, err := b.m.Acquire(ctx, "r", ttl, &lease.AcquireOptions{RenewEvery: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	select {
	case <-l.Done():
		t.Errorf("lost: %v", l.Err())
	case <-time.After(ttl + ttl/4): // only renewals can have kept it
	}
	if !b.exists(t, leaseKey) {
		t.Error("the renewals stopped with the acquire's context")
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Not parallel: it counts the goroutines of the whole binary.
func TestCase26_ACycleLeavesNoGoroutine(t *testing.T) {
	b := setup(t, lease.Options{})
	cycle := func() {
		l, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	eventually(t, "the goroutines to go back", func() bool { return runtime.NumGoroutine() <= before })
}

// C04 e: without a fence a counter that expired would start again at 1.
func TestCase04e_CountersOfABareManagerNeverExpire(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{PollEvery: 5 * time.Millisecond})
	_, counterKey := lease.KeysOf(b.prefix, "r")
	never := func(when string) {
		t.Helper()
		if ttl := b.rdb.TTL(t.Context(), counterKey).Val(); ttl != -1 {
			t.Errorf("%s: the counter's TTL is %v", when, ttl)
		}
	}
	l := b.acquire(t, "r", time.Minute, nil)
	never("after acquire")
	if err := l.Renew(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	never("after renew")
	if _, err := l.Reissue(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	never("after reissue")
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	never("after release")
	b.acquire(t, "r", 20*time.Millisecond, &lease.AcquireOptions{NoRenewal: true})
	b.acquire(t, "r", time.Minute, nil) // waits for the first to expire
	never("after expiry")
}

func TestCounterIdleIsCountedFromTheLastGrant(t *testing.T) {
	t.Parallel()
	const idle = 48 * time.Hour
	b := setup(t, lease.Options{CounterIdle: idle})
	_, counterKey := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", time.Minute, nil)
	for step, do := range map[string]func() error{
		"grant":   func() error { return nil },
		"reissue": func() error { _, err := l.Reissue(t.Context(), 9); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if left := b.pttl(t, counterKey); left > idle || left < idle-time.Minute {
			t.Errorf("after %s the counter has %v left", step, left)
		}
	}
}

// C28 on the Redis side: tokens do not pass through Lua's doubles.
func TestCase28_TokensAtTheEdges(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	_, counterKey := lease.KeysOf(b.prefix, "r")
	for _, counter := range []token.Token{1, 1<<31 - 1, 1 << 53, 1<<53 + 1, token.Max - 1} {
		if err := b.rdb.Set(t.Context(), counterKey, counter.String(), 0).Err(); err != nil {
			t.Fatal(err)
		}
		l := b.acquire(t, "r", time.Minute, nil)
		if l.Token() != counter+1 {
			t.Errorf("a counter at %d gave token %d", counter, l.Token())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusalsOfTheServerAreUnavailable(t *testing.T) {
	t.Parallel()
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = nowhere.Close() }()
	m := manager(t, nowhere, lease.Options{PollEvery: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Acquire(ctx, "r", time.Minute, nil)
	wantErr(t, err, lease.ErrUnavailable, context.DeadlineExceeded)
	if errors.Is(err, lease.ErrHeld) {
		t.Errorf("an unreachable server was taken for a holder: %v", err)
	}
}
