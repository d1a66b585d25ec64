package lease_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// scriptHash is the hash in the calls of a script.
func scriptHash(t *testing.T, name string) string {
	t.Helper()
	source, err := os.ReadFile("lua/" + name + ".lua")
	if err != nil {
		t.Fatal(err)
	}
	return redis.NewScript(string(source)).Hash()
}

// scriptHook counts the calls of one script, alone or in a pipeline, and passes each to see, which makes the call by
// calling next.
type scriptHook struct {
	spyHook
	hash  string
	calls atomic.Int32
	texts bool                                           // a call that carries the script itself counts too
	see   func(cmd redis.Cmder, next func() error) error // nil: only counted
}

func (h *scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.pass([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h *scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.pass(cmds, func() error { return next(ctx, cmds) })
	}
}

func (h *scriptHook) pass(cmds []redis.Cmder, next func() error) error {
	for _, cmd := range cmds {
		if h.runs(cmd) {
			h.calls.Add(1)
			if h.see != nil {
				return h.see(cmd, next)
			}
		}
	}
	return next()
}

// runs reports whether a command runs the script, by its hash or, with texts, by its text.
func (h *scriptHook) runs(cmd redis.Cmder) bool {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return false
	}
	script, _ := cmd.Args()[1].(string)
	return script == h.hash || h.texts && cmd.Name() == "eval" && redis.NewScript(script).Hash() == h.hash
}

func spyOn(t *testing.T, client redis.UniversalClient, script string) *scriptHook {
	t.Helper()
	h := &scriptHook{hash: scriptHash(t, script)}
	client.AddHook(h)
	return h
}

// The server hangs for longer than one attempt of a waiter, and then carries out what it was sent meanwhile. The
// abandoned attempts are cleaned up; the place in the queue belongs to a caller who still waits.
func TestAnAttemptLeftBehindDoesNotCostAWaiterItsPlace(t *testing.T) {
	t.Parallel()
	p := setupProxied(t, lease.Options{}, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	attempts, left := spyOn(t, p.client, "acquire"), spyOn(t, p.client, "leave")
	straight := bundle{rdb: p.rdb, prefix: p.prefix, m: manager(t, p.rdb, lease.Options{Prefix: p.prefix})}
	holder := straight.acquire(t, "r", time.Minute, nil)
	p.proxy.Hang()
	got := make(chan *lease.Lease, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		l, err := p.m.Acquire(ctx, "r", time.Minute, nil)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	// One without a place, one with a place that is abandoned, and the next.
	eventually(t, "a further attempt", func() bool { return attempts.calls.Load() == 3 })
	p.proxy.Resume()
	eventually(t, "a place in the queue", func() bool { return straight.queueLength(t) == 1 })
	eventually(t, "an answer to each attempt", func() bool {
		return p.client.PoolStats().IdleConns+1 >= p.client.PoolStats().TotalConns
	})
	if n := straight.queueLength(t); n != 1 || left.calls.Load() > 0 {
		t.Errorf("%d wait, after %d have left", n, left.calls.Load())
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	given(t, got)
	eventually(t, "all keys but the counter to be gone", func() bool {
		return straight.queueLength(t) == 0 && !p.exists(t, p.prefix+":{r}:lease")
	})
}

// Calls that were given up before they were sent are never sent: a server that answers again should not be busy
// granting leases to nobody.
func TestCallsGivenUpBeforeTheyAreSentAreNotSent(t *testing.T) {
	t.Parallel()
	b, hook := setupHanging(t)
	hook.hanging = make(chan struct{}, 128)
	resume := sync.OnceFunc(func() { close(hook.resume) })
	defer resume()
	about := &keyHook{part: "{given-up"}
	b.rdb.AddHook(about)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	try := func(name string) {
		all.Go(func() {
			_, err := b.m.TryAcquire(ctx, name, time.Minute, nil)
			wantErr(t, err, lease.ErrUnavailable, context.Canceled)
		})
	}
	const most = 16 // go at the same time
	for i := range most {
		try(fmt.Sprintf("hung-%d", i))
		within(t, "the call that hangs", 5*time.Second, hook.hanging)
	}
	const more = 40
	for i := range more {
		try(fmt.Sprintf("given-up-%d", i))
	}
	for i := range more {
		try(fmt.Sprintf("hung-and-given-up-%d", i))
	}
	<-time.After(100 * time.Millisecond) // many times the wait before another is sent
	cancel()
	all.Wait()
	if n := len(hook.hanging); n > 0 {
		t.Errorf("%d further calls went while %d hang", n, most)
	}
	resume()
	leaseKey, _ := lease.KeysOf(b.prefix, fmt.Sprintf("hung-%d", most-1))
	eventually(t, "the removal of what was granted to nobody", func() bool { return !b.exists(t, leaseKey) })
	if n := about.calls.Load(); n > 0 {
		t.Errorf("%d commands for calls that were given up before they were sent", n)
	}
}

// keyHook counts commands whose arguments have a part of a key.
type keyHook struct {
	spyHook
	part  string
	calls atomic.Int32
}

func (h *keyHook) look(cmds ...redis.Cmder) {
	for _, c := range cmds {
		if strings.Contains(fmt.Sprint(c.Args()...), h.part) {
			h.calls.Add(1)
		}
	}
}

func (h *keyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.look(cmd)
		return next(ctx, cmd)
	}
}

func (h *keyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.look(cmds...)
		return next(ctx, cmds)
	}
}

// C03 with a client that retries by itself and then meets an error other than a lost reply. Its last error says nothing
// about the first try, which granted the lease.
func TestCase03_ALostReplyBehindAnotherErrorIsCleanedUpAfter(t *testing.T) {
	t.Parallel()
	t.Run("a refused dial", func(t *testing.T) {
		t.Parallel()
		var dials atomic.Int32
		p := setupProxied(t, lease.Options{}, func(o *redis.Options) {
			o.MaxRetries, o.DialerRetries = 1, 1
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if dials.Add(1) == 2 { // after the first has been cut, and never else
					return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
		})
		p.acquire(t, "warm", time.Minute, &lease.AcquireOptions{NoRenewal: true})
		dropped := p.proxy.DropNextReply(faults.Containing(p.prefix))
		p.failsAndLeavesNothing(t)
		within(t, "the lost reply", time.Second, dropped)
		if dials.Load() < 2 {
			t.Error("nothing was dialled: the fault did not strike")
		}
	})
	t.Run("a server that is loading", func(t *testing.T) {
		t.Parallel()
		p := setupProxied(t, lease.Options{}, nil)
		p.acquire(t, "warm", time.Minute, &lease.AcquireOptions{NoRenewal: true})
		hook := spyOn(t, p.client, "acquire")
		hook.see = func(cmd redis.Cmder, next func() error) error {
			if err := next(); err != nil {
				return err
			}
			err := errLoading{}
			cmd.SetErr(err)
			return err
		}
		p.failsAndLeavesNothing(t)
	})
}

// errLoading is the error of a server that has been restarted.
type errLoading struct{}

func (errLoading) Error() string { return "LOADING Redis is loading the dataset in memory" }
func (errLoading) RedisError()   {}

func (p proxied) failsAndLeavesNothing(t *testing.T) {
	t.Helper()
	leaseKey, counterKey := lease.KeysOf(p.prefix, "r")
	_, err := p.m.TryAcquire(t.Context(), "r", time.Minute, nil)
	wantErr(t, err, lease.ErrUnavailable)
	if p.rdb.Get(t.Context(), counterKey).Val() != "1" {
		t.Fatal("the request did not reach Redis: the fault did not strike")
	}
	if p.exists(t, leaseKey) {
		t.Error("the lease that nobody has is still there")
	}
}

// A key of another type takes a second look, and that may hang as well.
func TestACallEndsWithItsContextThoughTheLookAtABadKeyHangs(t *testing.T) {
	t.Parallel()
	b := setup(t, lease.Options{})
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	if err := b.rdb.HSet(t.Context(), leaseKey, "owner", "me").Err(); err != nil {
		t.Fatal(err)
	}
	hook := &typeHook{hanging: make(chan struct{}, 1), resume: make(chan struct{})}
	b.rdb.AddHook(hook)
	defer close(hook.resume)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := b.m.TryAcquire(ctx, "r", time.Minute, nil)
		wantErr(t, err, lease.ErrUnavailable)
	}()
	within(t, "the look at the keys", 5*time.Second, hook.hanging)
	cancel()
	within(t, "the end of the call", 5*time.Second, ended) // the look hangs to the end of the test
}

type typeHook struct {
	spyHook
	hanging, resume chan struct{}
}

func (h *typeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "type" {
			select {
			case h.hanging <- struct{}{}:
			default:
			}
			<-h.resume
		}
		return next(ctx, cmd)
	}
}

// A renewal that waits behind hanging ones is not sent once its lease is over.
func TestNoRenewalIsSentForALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	rdb, prefix := testenv.Redis(t), testenv.Prefix(t)
	hook := &stuckHook{key: ":{hung", stuck: make(chan struct{}, 16), release: make(chan struct{})}
	rdb.AddHook(hook)
	b := bundle{rdb: rdb, prefix: prefix, m: manager(t, rdb, lease.Options{Prefix: prefix})}
	often := &lease.AcquireOptions{RenewEvery: 20 * time.Millisecond}
	for i := range 4 { // as many as there are senders
		b.acquire(t, fmt.Sprintf("hung-%d", i), time.Minute, often)
		within(t, "a renewal that hangs", 5*time.Second, hook.stuck)
	}
	renewals := spyOn(t, rdb, "renew")
	expired := b.acquire(t, "expired", 100*time.Millisecond, often)
	released := b.acquire(t, "released", time.Minute, often)
	within(t, "the end of a lease that is not renewed", 5*time.Second, expired.Done())
	if err := released.Release(t.Context()); err != nil {
		t.Error(err)
	}
	// If it were sent, it would find the key as it left it.
	for _, l := range []*lease.Lease{expired, released} {
		leaseKey, _ := lease.KeysOf(prefix, l.Resource())
		if err := rdb.Set(t.Context(), leaseKey, l.Nonce().Hex()+" 1 again", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := renewals.calls.Load()
	close(hook.release)
	eventually(t, "renewals to go on", func() bool { return renewals.calls.Load() > before+8 })
	for _, l := range []*lease.Lease{expired, released} {
		leaseKey, _ := lease.KeysOf(prefix, l.Resource())
		if left := b.pttl(t, leaseKey); left < 30*time.Minute {
			t.Errorf("%q was renewed after its end: %v left", l.Resource(), left)
		}
	}
}

func acquireSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("lua/acquire.lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}
