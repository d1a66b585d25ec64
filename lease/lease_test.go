package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

func TestTokensRiseFromGrantToGrant(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	var last token.Token
	for range 20 {
		l := b.acquire(t, "r", time.Minute, nil)
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	other := b.acquire(t, "another", time.Minute, nil)
	if other.Token() != 1 || !other.CounterWasAbsent() {
		t.Errorf("a new resource begins with token %d, counter absent %v", other.Token(), other.CounterWasAbsent())
	}
}

func TestTryAcquireSaysWhoHoldsTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	b.acquire(t, "r", time.Minute, &lease.AcquireOptions{Label: "worker {7}\nline two"})
	_, err := b.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	var held *lease.HeldError
	if !errors.As(err, &held) || !errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if held.Resource != "r" || held.Label != "worker {7}\nline two" || held.TTL <= 0 || held.TTL > time.Minute {
		t.Errorf("got %+v", held)
	}
}

func TestAcquireWaitsForTheHolder(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{PollEvery: 5 * time.Millisecond})
	first := b.acquire(t, "r", time.Minute, nil)
	got := make(chan *lease.Lease, 1)
	go func() {
		l, err := b.m.Acquire(t.Context(), "r", time.Minute, nil)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := <-got
	if second == nil {
		t.FailNow()
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAcquireEndsWithItsContextAndSaysBoth(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{PollEvery: 5 * time.Millisecond})
	b.acquire(t, "r", time.Minute, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // time for an answer
	defer cancel()
	_, err := b.m.Acquire(ctx, "r", time.Minute, nil)
	wantErr(t, err, lease.ErrHeld, context.DeadlineExceeded)

	why := errors.New("shutting down")
	cancelled, stop := context.WithCancelCause(t.Context())
	stop(why)
	_, err = b.m.Acquire(cancelled, "r", time.Minute, nil)
	wantErr(t, err, lease.ErrUnavailable, context.Canceled)
	if errors.Is(err, lease.ErrHeld) {
		t.Errorf("nothing was asked, and yet: %v", err)
	}
}

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{PollEvery: time.Millisecond})
	const workers, rounds = 8, 10
	var mu sync.Mutex
	inside, seen := 0, make(map[token.Token]bool)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				l, err := b.m.Acquire(t.Context(), "r", time.Minute, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				inside++
				if inside != 1 || seen[l.Token()] {
					t.Errorf("%d inside, token %d seen before: %v", inside, l.Token(), seen[l.Token()])
				}
				seen[l.Token()] = true
				inside--
				mu.Unlock()
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(seen) != workers*rounds {
		t.Errorf("%d tokens for %d grants", len(seen), workers*rounds)
	}
}

func TestLeaseContextCarriesValuesAndNotTheEndOfTheAcquire(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
	l, err := b.m.Acquire(ctx, "r", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if l.Context().Err() != nil || l.Err() != nil {
		t.Errorf("the lease ended with the acquire's context: %v", l.Err())
	}
	if l.Context().Value(key{}) != "trace" {
		t.Error("the values of the acquire's context are gone")
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	wantErr(t, context.Cause(l.Context()), lease.ErrLost, lease.ErrReleased)
	wantErr(t, l.Err(), lease.ErrLost, lease.ErrReleased)
	wantReason(t, l.Err(), lease.ReasonReleased)
}

func TestReissueMovesTheCounterUpAndDownAndKeepsTheTTL(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, counterKey := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err := b.rdb.PExpire(t.Context(), leaseKey, 20*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	for _, fence := range []token.Token{100, 1 << 60, 7, 0} {
		tok, err := l.Reissue(t.Context(), fence)
		if err != nil || tok != fence+1 || l.Token() != tok {
			t.Fatalf("reissue above %d gave %d, %v; the lease says %d", fence, tok, err, l.Token())
		}
		if got := b.rdb.Get(t.Context(), counterKey).Val(); got != tok.String() {
			t.Errorf("the counter is at %s", got)
		}
	}
	if ttl := b.pttl(t, leaseKey); ttl <= 0 || ttl > 20*time.Second {
		t.Errorf("reissue changed the TTL to %v", ttl)
	}
	if err := l.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("the lease is no longer ours after reissue: %v", err)
	}
	_, err := l.Reissue(t.Context(), token.Max)
	wantErr(t, err, lease.ErrInvalid)
	if err := b.rdb.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = l.Reissue(t.Context(), 5)
	wantErr(t, err, lease.ErrLost)
}

func TestFloorLiftsTheToken(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	for _, floor := range []token.Token{1<<53 + 1, 5, 1 << 53} {
		l := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{Floor: floor})
		if l.Token() <= floor || l.Token() <= 1<<53+1 {
			t.Errorf("floor %d gave token %d", floor, l.Token())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRingIsRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { _ = ring.Close() }()
	_, err := lease.NewManager(ring, nil)
	wantErr(t, err, lease.ErrInvalid)
	_, err = lease.NewManager(nil, nil)
	wantErr(t, err, lease.ErrInvalid)
}
