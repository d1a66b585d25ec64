package lease_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// C13 in the case's own figures.
const (
	ttl13   = 900 * time.Millisecond
	every13 = 300 * time.Millisecond
)

// lostSignal is a Lost hook that signals its calls.
func lostSignal() (func(*lease.Lease, *lease.LostError), <-chan *lease.LostError) {
	lost := make(chan *lease.LostError, 16)
	return func(_ *lease.Lease, cause *lease.LostError) { lost <- cause }, lost
}

func TestCase13a_OneFailedRenewalLosesNothing(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.MaxRetries = -1 })
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	const ttl = 3 * time.Second // a busy machine may use up part of it
	l := p.acquire(t, "r", ttl, &lease.AcquireOptions{RenewEvery: every13})
	failed := p.proxy.DropNextRequest(faults.Containing(l.Nonce().Hex()))
	within(t, "the failing renewal", 5*time.Second, failed)
	first := p.pttl(t, leaseKey)
	eventually(t, "a renewal after the failed one", func() bool { return p.pttl(t, leaseKey) > first })
	select {
	case <-l.Done():
		t.Errorf("lost by one failed renewal: %v", l.Err())
	case <-time.After(ttl): // long enough for the lease to have run out without renewal
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
	within(t, "the end of the lease's context", remaining+5*time.Second, l.Done())
	wantErr(t, context.Cause(l.Context()), lease.ErrLost)
	wantErr(t, l.Err(), lease.ErrLost)
	if cause := <-lost; cause.Resource != "r" || cause.Token != l.Token() {
		t.Errorf("the hook was told %+v", cause)
	}
	if l.Remaining() != 0 {
		t.Errorf("%v remain of a lost lease", l.Remaining())
	}
}

// I6's control: the deadline counts from the reply, as in a lock that ignores slow replies. The holder then believes in
// its lease while Redis has given it away.
func TestInvariant6Control_CountingFromTheReplyOutlivesTheKey(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	leaseKey, _ := lease.KeysOf(p.prefix, "r")
	p.acquire(t, "warm", time.Minute, nil)
	const ttl = 10 * time.Second
	held, letGo := p.proxy.HoldNextReply(faults.Containing(leaseKey))
	var l *lease.Lease
	replied := make(chan time.Time, 1)
	go func() {
		var err error
		l, err = p.m.TryAcquire(t.Context(), "r", ttl, &lease.AcquireOptions{NoRenewal: true})
		if err != nil {
			t.Error(err)
		}
		replied <- time.Now()
	}()
	<-held
	eventually(t, "a part of the key's time to pass", func() bool {
		return p.pttl(t, leaseKey) < ttl-300*time.Millisecond
	})
	letGo()
	naive := (<-replied).Add(ttl)
	if l == nil {
		return
	}
	ours := time.Now().Add(l.Remaining())
	gone := time.Now().Add(p.pttl(t, leaseKey))
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
	l := b.acquire(t, "r", time.Minute, &lease.AcquireOptions{RenewEvery: every13})
	if err := b.rdb.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	b.wantNextRenewalToTell(t, l, lease.ReasonGone)
	if b.exists(t, leaseKey) {
		t.Error("a renewal created the key")
	}
}

func TestATakenKeyIsNoticedAndLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(t, "r", 30*time.Second, &lease.AcquireOptions{RenewEvery: every13})
	nonce := token.NewNonce().Hex()
	b.do(
		t,
		"SET",
		leaseKey,
		nonce+" 2 rival",
		"PX",
		3_600_000,
	) // atomically, so that no renewal finds the key missing
	b.wantNextRenewalToTell(t, l, lease.ReasonTaken)
	if left := b.pttl(t, leaseKey); left < time.Minute {
		t.Errorf("the rival's TTL was cut to %v", left)
	}
	if value := b.rdb.Get(t.Context(), leaseKey).Val(); value != nonce+" 2 rival" {
		t.Errorf("the rival's key holds %q", value)
	}
}

// wantNextRenewalToTell checks that a lease whose key is gone ends with the next renewal that is sent, and not with its
// TTL.
func (b bundle) wantNextRenewalToTell(t *testing.T, l *lease.Lease, why lease.Reason) {
	t.Helper()
	renewals := spyOn(t, b.rdb, "renew")
	within(t, "the loss", 10*time.Second, l.Done())
	wantReason(t, l.Err(), why)
	if n := renewals.calls.Load(); n > 1 {
		t.Errorf("noticed by the %d. renewal", n)
	}
}

// C13 d: a renewal hangs for longer than the interval; no second one is sent beside it.
func TestCase13d_OneRenewalInFlight(t *testing.T) {
	t.Parallel()
	const ttl, every = 20 * time.Second, 50 * time.Millisecond
	var sent atomic.Int32
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	l := p.acquire(t, "r", ttl, &lease.AcquireOptions{RenewEvery: every})
	p.warm(t, 3) // a second renewal would not have to wait for a dial
	p.proxy.Hang()
	p.proxy.DropNextRequest(func(request []byte) bool { // sees what clients send, also while the proxy hangs
		if faults.Containing(l.Nonce().Hex())(request) {
			sent.Add(1)
		}
		return false
	})
	eventually(t, "a renewal that hangs", func() bool { return sent.Load() > 0 })
	began := l.Remaining()
	eventually(
		t,
		"the lease to have gone without renewals for ten intervals",
		func() bool { return l.Remaining() < began-10*every },
	)
	if n := sent.Load(); n > 1 {
		t.Errorf("%d renewals were under way at once", n)
	}
	p.proxy.Resume()
	eventually(t, "a renewal after the one that hung", func() bool { return sent.Load() > 1 })
	if err := l.Err(); err != nil {
		t.Errorf("lost: %v", err)
	}
}

// warm leaves n connections in the pool that commands can be sent on at once.
func (p proxied) warm(t *testing.T, n int) {
	t.Helper()
	conns := make([]*redis.Conn, n)
	for i := range conns {
		conns[i] = p.client.Conn()
		if err := conns[i].Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range conns {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnUnreachableServerIsTheReason(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second // time for a renewal to fail in its first half
	late := make(chan error, 1)
	p := setupProxied(t, lease.Options{Hooks: lease.Hooks{
		RenewalLate: func(_ *lease.Lease, since time.Duration, err error) {
			if since < ttl/2 {
				t.Errorf("called late after %v of %v", since, ttl)
			}
			late <- err
		},
	}}, func(o *redis.Options) { o.MaxRetries = -1 })
	l := p.acquire(t, "r", ttl, &lease.AcquireOptions{RenewEvery: ttl / 20})
	p.proxy.Cut()
	within(t, "the loss", 10*time.Second, l.Done())
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
	if err := l.Renew(t.Context(), time.Minute); err != nil { // loads the script
		t.Fatal(err)
	}
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

// The log of a loss says what happened, and has no error if there was none.
func TestALossIsLoggedAsWhatItWas(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	b := setup(t, lease.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	gone, expired := b.acquire(
		t,
		"r",
		time.Minute,
		nil,
	), b.acquire(
		t,
		"s",
		50*time.Millisecond,
		&lease.AcquireOptions{NoRenewal: true},
	)
	if err := b.rdb.Del(t.Context(), leaseKey).Err(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, gone.Renew(t.Context(), time.Minute), lease.ErrLost)
	<-expired.Done()
	wantReason(t, expired.Err(), lease.ReasonExpired)
	// The context ends before it is logged.
	eventually(t, "both to be logged", func() bool { return strings.Count(log.String(), "lease lost") == 2 })
	text := log.String()
	if !strings.Contains(text, `reason="gone before its time"`) || !strings.Contains(text, "reason=expired") ||
		strings.Contains(text, "nil") {
		t.Errorf("logged: %s", text)
	}
}

// lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
