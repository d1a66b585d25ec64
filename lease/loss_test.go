package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/lease"
)

// C13 in the case's own figures.
const (
	ttl13   = 900 * time.Millisecond
	every13 = 300 * time.Millisecond
)

// lostSignal is a Lost hook that says so.
func lostSignal() (func(*lease.Lease, *lease.LostError), <-chan *lease.LostError) {
	lost := make(chan *lease.LostError, 16)
	return func(_ *lease.Lease, cause *lease.LostError) { lost <- cause }, lost
}

func TestCase13a_OneFailedRenewalLosesNothing(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	l := p.acquire(t, "r", ttl13, &lease.AcquireOptions{RenewEvery: every13})
	failed := p.proxy.DropNextRequest(faults.Containing(l.Nonce().Hex()))
	within(t, "the failing renewal", 2*every13, failed)
	first := p.pttl(t, leaseKey)
	eventually(t, "a renewal after the failed one", func() bool { return p.pttl(t, leaseKey) > first })
	select {
	case <-l.Done():
		t.Errorf("lost by one failed renewal: %v", l.Err())
	case <-time.After(ttl13): // long enough for the lease to have run out without renewal
	}
	if l.Err() != nil {
		t.Errorf("lost by one failed renewal: %v", l.Err())
	}
}

// C13 b and I6: Redis never answers, and the holder is told before Redis can give the lease away.
func TestInvariant6_AHolderIsToldInTimeThoughRedisHangs(t *testing.T) {
	t.Parallel()
	hook, lost := lostSignal()
	p := setupProxied(t, lease.Options{Hooks: lease.Hooks{Lost: hook}}, nil)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	l := p.acquire(t, "r", ttl13, &lease.AcquireOptions{RenewEvery: every13})
	p.proxy.Hang()
	defer p.proxy.Resume()
	// The holder's deadline lies before the key's end, as the server says, asked directly. Reading ours first
	// makes the comparison hold on a slow machine too.
	began, remaining := time.Now(), l.Remaining()
	if left := p.pttl(t, leaseKey); remaining-time.Since(began) >= left {
		t.Errorf("the holder trusts its lease for %v, Redis keeps it for %v", remaining-time.Since(began), left)
	}
	within(t, "the end of the lease's context", remaining+time.Second, l.Done())
	wantErr(t, context.Cause(l.Context()), lease.ErrLost)
	wantErr(t, l.Err(), lease.ErrLost)
	if cause := <-lost; cause.Resource != "r" || cause.Token != l.Token() {
		t.Errorf("the hook was told %+v", cause)
	}
	if l.Remaining() != 0 {
		t.Errorf("%v remain of a lost lease", l.Remaining())
	}
}

// I6's control: the deadline counted from the reply, as a lock with a slow reply would have it. The
// holder then believes in its lease while Redis has given it away.
func TestInvariant6Control_CountingFromTheReplyOutlivesTheKey(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	p.acquire(t, "warm", time.Minute, nil)
	const ttl = time.Second
	p.proxy.Latency(300 * time.Millisecond)
	l, err := p.m.TryAcquire(t.Context(), "r", ttl, &lease.AcquireOptions{NoRenewal: true})
	replied := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	p.proxy.Heal()
	ours := time.Now().Add(l.Remaining())
	gone := time.Now().Add(p.pttl(t, leaseKey))
	naive := replied.Add(ttl)
	if !ours.Before(gone) {
		t.Errorf("our deadline is %v after the key's end", ours.Sub(gone))
	}
	if !naive.After(gone) {
		t.Errorf("the naive deadline is within the key's time: the control shows nothing (%v early)", gone.Sub(naive))
	}
}

func TestCase13c_ADeletedKeyIsNoticedWithinOneInterval(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", ttl13, &lease.AcquireOptions{RenewEvery: every13})
	if err := b.rdb.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	within(t, "the loss", every13+200*time.Millisecond, l.Done())
	wantReason(t, l.Err(), lease.ReasonExpired)
	if b.exists(t, leaseKey) {
		t.Error("a renewal created the key")
	}
}

func TestATakenKeyIsNoticedAndLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", ttl13, &lease.AcquireOptions{RenewEvery: every13})
	if err := b.rdb.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	rival := b.acquire(t, "r", time.Minute, nil)
	within(t, "the loss", every13+200*time.Millisecond, l.Done())
	wantReason(t, l.Err(), lease.ReasonTaken)
	if left := b.pttl(t, leaseKey); left < ttl13 {
		t.Errorf("the rival's TTL was cut to %v", left)
	}
	if rival.Err() != nil {
		t.Errorf("the rival lost: %v", rival.Err())
	}
}

// C13 d: a renewal hangs for longer than the interval; no second one is sent beside it.
func TestCase13d_OneRenewalInFlight(t *testing.T) {
	t.Parallel()
	var inFlight, most atomic.Int32
	p := setupProxied(t, lease.Options{}, nil)
	l := p.acquire(t, "r", 2*time.Second, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	matched := make(chan struct{}, 64)
	p.proxy.Hang()
	p.proxy.DropNextRequest(func(request []byte) bool {
		if faults.Containing(l.Nonce().Hex())(request) {
			matched <- struct{}{}
			most.Store(max(most.Load(), inFlight.Add(1)))
		}
		return false
	})
	eventually(t, "the lease to have gone without renewals for ten intervals", func() bool { return l.Remaining() < 1400*time.Millisecond })
	p.proxy.Resume()
	<-matched
	if most.Load() > 1 {
		t.Errorf("%d renewals were under way at once", most.Load())
	}
	if err := l.Err(); err != nil {
		t.Errorf("lost: %v", err)
	}
}

func TestAnUnreachableServerIsTheReason(t *testing.T) {
	t.Parallel()
	late := make(chan error, 1)
	p := setupProxied(t, lease.Options{Hooks: lease.Hooks{
		RenewalLate: func(_ *lease.Lease, since time.Duration, err error) {
			if since < ttl13/2 {
				t.Errorf("called late after %v of %v", since, ttl13)
			}
			late <- err
		},
	}}, func(o *redis.Options) { o.MaxRetries = -1 })
	l := p.acquire(t, "r", ttl13, &lease.AcquireOptions{RenewEvery: ttl13 / 20})
	p.proxy.Cut()
	within(t, "the loss", 2*ttl13, l.Done())
	wantReason(t, l.Err(), lease.ReasonUnreachable)
	wantErr(t, l.Err(), lease.ErrLost, lease.ErrUnavailable)
	if err := <-late; err == nil {
		t.Error("the late renewal came without its failure")
	}
}

func TestALateReplyIsNotASuccess(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	p.acquire(t, "warm", time.Minute, nil)
	p.proxy.Latency(400 * time.Millisecond)
	_, err := p.m.TryAcquire(t.Context(), "r", 200*time.Millisecond, nil)
	wantErr(t, err, lease.ErrLost)
	p.proxy.Heal()
	if p.exists(t, leaseKey) {
		t.Error("the lease that came too late was left behind")
	}
}

func TestAShorterTTLCountsFromBeforeItIsSent(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	l := p.acquire(t, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	p.proxy.DropNextReply(faults.Containing(l.Nonce().Hex()))
	wantErr(t, l.Renew(t.Context(), time.Second), lease.ErrUnavailable)
	left := p.pttl(t, leaseKey)
	if left > time.Second {
		t.Fatalf("PTTL %v: the renewal did not reach Redis", left)
	}
	if l.Remaining() > left {
		t.Errorf("the holder trusts its lease for %v, Redis keeps it for %v", l.Remaining(), left)
	}
}
