package lease_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// hangSome is a hook that holds back commands about resources named "hung…" until it is told to resume. It counts what
// passes.
type hangSome struct {
	spyHook
	hanging   chan struct{}
	resume    chan struct{}
	pipelines atomic.Int32 // of scripts
	calls     atomic.Int32 // scripts, alone or in pipelines
}

func (h *hangSome) pass(cmds ...redis.Cmder) {
	about := func(c redis.Cmder) bool { return strings.Contains(fmt.Sprint(c.Args()...), "{hung") }
	for _, c := range cmds {
		if strings.HasPrefix(c.Name(), "eval") {
			h.calls.Add(1)
		}
	}
	if slices.ContainsFunc(cmds, about) {
		select {
		case <-h.resume: // resumed: nothing hangs any longer
			return
		default:
		}
		h.hanging <- struct{}{}
		<-h.resume
	}
}

func (h *hangSome) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.pass(cmd)
		return next(ctx, cmd)
	}
}

func (h *hangSome) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") { // a new connection introduces itself in a pipeline, too
			h.pipelines.Add(1)
		}
		h.pass(cmds...)
		return next(ctx, cmds)
	}
}

func setupHanging(t *testing.T) (bundle, *hangSome) {
	t.Helper()
	rdb, prefix := testenv.Redis(t), testenv.Prefix(t)
	hook := &hangSome{hanging: make(chan struct{}, 16), resume: make(chan struct{})}
	rdb.AddHook(hook)
	return bundle{rdb: rdb, prefix: prefix, m: manager(t, rdb, lease.Options{Prefix: prefix})}, hook
}

// Calls that hang block neither their callers nor later callers.
func TestCallsThatHangDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	resume := sync.OnceFunc(func() { close(hook.resume) })
	defer resume()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for i := range 15 { // as many as may hang without making others wait
		all.Go(func() {
			if _, err := b.m.TryAcquire(ctx, fmt.Sprintf("hung-%d", i), time.Minute, nil); err == nil {
				t.Error("a call that hangs was granted")
			}
		})
		within(t, "the call that hangs", 5*time.Second, hook.hanging)
	}
	began := time.Now()
	patience, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	l, err := b.m.TryAcquire(patience, "other", time.Minute, nil)
	if took := time.Since(
		began,
	); err != nil ||
		took > 5*time.Second { // watchdog comes after 5 ms, and what hangs does so to the end of the test
		t.Fatalf("%v after %v", err, took)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	all.Wait()
	resume()
	leaseKey, _ := lease.KeysOf(b.prefix, "hung-0")
	eventually(t, "the removal of what was granted to nobody", func() bool { return !b.exists(t, leaseKey) })
}

// Concurrent calls travel together, and each gets its own reply.
func TestCallsTravelTogether(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	b.acquire(t, "r-0", time.Minute, nil)
	const workers, rounds = 16, 100
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for range rounds {
				l, err := b.m.TryAcquire(t.Context(), fmt.Sprintf("r-%d", w), time.Minute, nil)
				if w == 0 {
					wantErr(t, err, lease.ErrHeld)
					continue
				}
				if err != nil {
					t.Error(err)
				} else if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if calls, pipelines := hook.calls.Load(), hook.pipelines.Load(); pipelines == 0 || pipelines > calls/2 {
		t.Errorf("%d calls and %d pipelines: they did not travel together", calls, pipelines)
	}
}
