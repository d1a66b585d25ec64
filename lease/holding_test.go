package lease_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

func TestMaxHoldEndsALeaseWhateverRenewalsSay(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	l := b.acquire(
		t,
		"r",
		10*time.Second,
		&lease.AcquireOptions{RenewEvery: 20 * time.Millisecond, MaxHold: 200 * time.Millisecond},
	)
	if l.Remaining() > 200*time.Millisecond {
		t.Errorf("%v remain", l.Remaining())
	}
	within(t, "the end", 5*time.Second, l.Done())
	wantReason(t, l.Err(), lease.ReasonMaxHold)
	wantErr(t, context.Cause(l.Context()), lease.ErrLost)
	eventually(t, "the key to be gone long before its TTL", func() bool { return !b.exists(t, leaseKey) })
}

// A job that hangs loses its lease, and one that makes progress keeps it. The control is the same job without the mode.
func TestALeaseIsRenewedOnlyWhileTheWorkGetsOn(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl, every = 3 * time.Second, 50 * time.Millisecond
	hung := b.acquire(t, "hung", ttl, &lease.AcquireOptions{RenewEvery: every, ProgressEvery: 100 * time.Millisecond})
	alive := b.acquire(t, "alive", ttl, &lease.AcquireOptions{RenewEvery: every, ProgressEvery: ttl / 2})
	control := b.acquire(t, "control", ttl, &lease.AcquireOptions{RenewEvery: every})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				alive.Progress()
			case <-stop:
				return
			}
		}
	}()
	within(t, "the hung job's loss", 10*time.Second, hung.Done())
	wantReason(t, hung.Err(), lease.ReasonStalled)
	if alive.Err() != nil || control.Err() != nil {
		t.Errorf("lost as well: %v, %v", alive.Err(), control.Err())
	}
	close(stop)
	<-done
}

// Ten thousand leases: at most ten goroutines more, and less than 2 KiB of Go memory each. Not parallel: it
// measures the whole binary.
func TestTenThousandLeasesAreCheap(t *testing.T) {
	b := setup(t, lease.Options{})
	const leases, ttl = 10_000, time.Hour
	held := make([]*lease.Lease, leases)
	clock := newFiringClock()
	m, err := lease.NewManager(b.rdb, lease.WithClock(lease.Options{Prefix: b.prefix}, clock.fake()))
	if err != nil {
		t.Fatal(err)
	}
	b.acquire(t, "warm", time.Minute, nil)
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range held {
		l, err := m.TryAcquire(context.Background(), fmt.Sprintf("r%d", i), ttl, nil)
		if err != nil {
			t.Fatal(err)
		}
		held[i] = l
	}
	most := 0
	clock.advance(ttl / 3) // all are due at once
	renewed := func(l *lease.Lease) bool {
		most = max(most, runtime.NumGoroutine()-goroutines)
		return l.Remaining() > ttl*9/10
	}
	for _, l := range held {
		eventually(t, "its renewal", func() bool { return renewed(l) })
	}
	each := (int64(heap()) - int64(before)) / leases
	t.Logf("%d goroutines more at most, %d bytes per lease", most, each)
	if most > 10 || each > 2048 {
		t.Errorf("%d goroutines more, %d bytes per lease", most, each)
	}
	for _, l := range held {
		if l.Err() != nil {
			t.Fatalf("lost: %v", l.Err())
		}
	}
	for _, l := range held {
		if err := l.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A renewal succeeds even if the server has lost its script, in a pipeline that cannot teach it.
func TestCase16_PipelinedRenewalsOutliveAnEmptyScriptCache(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	rdb := testenv.RedisOn(t, server.URL())
	b := bundle{rdb: rdb, prefix: "p", m: manager(t, rdb, lease.Options{Prefix: "p"})}
	const ttl = 3 * time.Second
	var held []*lease.Lease
	for i := range 50 {
		held = append(
			held,
			b.acquire(t, fmt.Sprintf("r%d", i), ttl, &lease.AcquireOptions{RenewEvery: 100 * time.Millisecond}),
		)
	}
	end := time.NewTimer(ttl + ttl/4)
	defer end.Stop()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		case <-end.C:
			running = false
		}
	}
	for _, l := range held {
		if err := l.Err(); err != nil {
			t.Errorf("lost: %v", err)
		}
	}
}

// hangOnce is a hook that holds back the first pipeline of renewals until it is told to resume.
type hangOnce struct {
	spyHook
	once    sync.Once
	hanging chan struct{}
	resume  chan struct{}
}

func (h *hangOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		first := false
		if cmds[0].Name() == "evalsha" { // and not what opens a connection
			h.once.Do(func() { first = true })
		}
		if first {
			close(h.hanging)
			<-h.resume
		}
		return next(ctx, cmds)
	}
}

// A renewal that hangs costs only its own lease.
func TestAHungRenewalDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	rdb := testenv.RedisOn(t, testenv.RedisURL(t))
	hook := &hangOnce{hanging: make(chan struct{}), resume: make(chan struct{})}
	rdb.AddHook(hook)
	prefix := testenv.Prefix(t)
	b := bundle{rdb: rdb, prefix: prefix, m: manager(t, rdb, lease.Options{Prefix: prefix})}
	const ttl = 2 * time.Second
	hung := b.acquire(t, "hung", ttl, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	within(t, "the renewal that hangs", 5*time.Second, hook.hanging)
	other := b.acquire(t, "other", ttl, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	within(t, "the loss of the lease that is not renewed", 10*time.Second, hung.Done())
	select {
	case <-other.Done():
		t.Errorf("the other was lost as well: %v", other.Err())
	case <-time.After(ttl + ttl/4): // only renewals can have kept it
	}
	close(hook.resume)
}

// A manual renewal ends with the deadline, whatever its context allows, and so do go-redis's own retries.
func TestARenewalEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	l := p.acquire(t, "r", 500*time.Millisecond, &lease.AcquireOptions{NoRenewal: true})
	p.proxy.Hang()
	defer p.proxy.Resume()
	began := time.Now()
	wantErr(t, l.Renew(context.Background(), 500*time.Millisecond), lease.ErrLost)
	if took := time.Since(began); took > 6*time.Second { // by itself it would try for twelve
		t.Errorf("it took %v", took)
	}
}
