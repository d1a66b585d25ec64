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
	l := b.acquire(t, "r", 10*time.Second, &lease.AcquireOptions{RenewEvery: 20 * time.Millisecond, MaxHold: 200 * time.Millisecond})
	if l.Remaining() > 200*time.Millisecond {
		t.Errorf("%v remain", l.Remaining())
	}
	within(t, "the end", 5*time.Second, l.Done())
	wantReason(t, l.Err(), lease.ReasonMaxHold)
	wantErr(t, context.Cause(l.Context()), lease.ErrLost)
	eventually(t, "the key to be gone long before its TTL", func() bool { return !b.exists(t, leaseKey) })
}

// A job that hangs loses its lease, one that gets on keeps it. The control is the same job without the mode.
func TestALeaseIsRenewedOnlyWhileTheWorkGetsOn(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	const ttl, every = 400 * time.Millisecond, 50 * time.Millisecond
	hung := b.acquire(t, "hung", ttl, &lease.AcquireOptions{RenewEvery: every, ProgressEvery: 100 * time.Millisecond})
	alive := b.acquire(t, "alive", ttl, &lease.AcquireOptions{RenewEvery: every, ProgressEvery: 300 * time.Millisecond})
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
	within(t, "the hung job's loss", 5*time.Second, hung.Done())
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
	const leases = 10_000
	held := make([]*lease.Lease, leases)
	warm := b.acquire(t, "warm", time.Minute, nil)
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range held {
		l, err := b.m.TryAcquire(context.Background(), fmt.Sprintf("r%d", i), 3*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		held[i] = l
	}
	most := 0
	end := time.NewTimer(4 * time.Second) // longer than the TTL: all have been renewed
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			most = max(most, runtime.NumGoroutine()-goroutines)
		case <-end.C:
			running = false
		}
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
	if err := warm.Err(); err != nil {
		t.Error(err)
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

// A renewal whose script the server has forgotten, in a pipeline that cannot teach it, is made all the same.
func TestCase16_PipelinedRenewalsOutliveAnEmptyScriptCache(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	rdb := testenv.RedisOn(t, server.URL())
	b := bundle{rdb: rdb, prefix: "p", m: manager(t, rdb, lease.Options{Prefix: "p"})}
	const ttl = 900 * time.Millisecond
	var held []*lease.Lease
	for i := range 50 {
		held = append(held, b.acquire(t, fmt.Sprintf("r%d", i), ttl, &lease.AcquireOptions{RenewEvery: 100 * time.Millisecond}))
	}
	end := time.NewTimer(2 * ttl)
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

// hangOnce is a hook under which the first pipeline of renewals gets no further until it is told to.
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

// A renewal that hangs costs its own lease, and no other's.
func TestAHungRenewalDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	o, err := redis.ParseURL(testenv.RedisURL(t))
	if err != nil {
		t.Fatal(err)
	}
	o.ReadTimeout = 50 * time.Millisecond // less than any lease has: renewals go through this very client, and its hooks
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	hook := &hangOnce{hanging: make(chan struct{}), resume: make(chan struct{})}
	rdb.AddHook(hook)
	prefix := testenv.Prefix(t)
	b := bundle{rdb: rdb, prefix: prefix, m: manager(t, rdb, lease.Options{Prefix: prefix})}
	const ttl = 600 * time.Millisecond
	hung := b.acquire(t, "hung", ttl, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	within(t, "the renewal that hangs", 5*time.Second, hook.hanging)
	other := b.acquire(t, "other", ttl, &lease.AcquireOptions{RenewEvery: 50 * time.Millisecond})
	within(t, "the loss of the lease that is not renewed", 5*time.Second, hung.Done())
	select {
	case <-other.Done():
		t.Errorf("the other was lost as well: %v", other.Err())
	case <-time.After(2 * ttl): // only renewals can have kept it
	}
	close(hook.resume)
}

// A renewal by hand ends with the deadline, whatever its context allows, and so does what go-redis tries by itself.
func TestARenewalEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, nil)
	l := p.acquire(t, "r", 500*time.Millisecond, &lease.AcquireOptions{NoRenewal: true})
	p.proxy.Hang()
	defer p.proxy.Resume()
	began := time.Now()
	wantErr(t, l.Renew(context.Background(), 500*time.Millisecond), lease.ErrLost)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}
