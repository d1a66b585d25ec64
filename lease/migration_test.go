package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// redirections counts the replies with which a cluster's nodes redirect or refuse commands.
type redirections struct {
	asked, moved, ask, tryAgain atomic.Int64
}

func (r *redirections) on(node *redis.Client) { node.AddHook(r) }

func (r *redirections) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *redirections) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.count(err)
		return err
	}
}

func (r *redirections) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			r.count(cmd.Err())
		}
		return err
	}
}

func (r *redirections) count(err error) {
	r.asked.Add(1)
	switch {
	case redis.HasErrorPrefix(err, "MOVED"):
		r.moved.Add(1)
	case redis.HasErrorPrefix(err, "ASK"):
		r.ask.Add(1)
	case redis.HasErrorPrefix(err, "TRYAGAIN"):
		r.tryAgain.Add(1)
	}
}

// grants is what the workers on one resource record.
type grants struct {
	inside atomic.Int32 // holders at this moment
	late   atomic.Bool  // no further acquires

	mu     sync.Mutex
	tokens []token.Token // in the order of the grants
	turns  chan struct{}
}

// A slot moves from node to node and back while eight workers acquire, renew and release in it. The nodes' replies
// meanwhile read as unavailability, never as a holder; there is one holder at a time, and tokens rise.
func TestASlotThatMovesUnderLoad(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, nil)
	var seen redirections
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := &grants{turns: make(chan struct{}, 100_000)}
	var b onCluster
	var wg sync.WaitGroup
	for i := range 8 {
		b = setupCluster(t, c, lease.Options{})
		b.client.OnNewNode(seen.on)
		b.prefix = "moves"
		m := manager(t, b.client, lease.Options{Prefix: b.prefix, Label: workerLabel, PollEvery: 10 * time.Millisecond})
		wg.Go(func() { g.work(ctx, t, m, i%2 == 0) })
	}
	leaseKey, counterKey := lease.KeysOf(b.prefix, "r")
	slot := b.slot(t, leaseKey)
	for range 3 {
		g.waitTurns(ctx, t, 20)
		b.moveSlot(ctx, t, slot, &seen, func() { b.leaseHasItsToken(t, leaseKey, counterKey) })
	}
	g.waitTurns(ctx, t, 20)
	g.late.Store(true)
	wg.Wait()
	for i, tok := range g.tokens {
		if i > 0 && tok <= g.tokens[i-1] {
			t.Fatalf("token %d was granted after %d", tok, g.tokens[i-1])
		}
	}
	t.Logf("%d grants; %d answers, of which %d MOVED, %d ASK, %d TRYAGAIN", len(g.tokens),
		seen.asked.Load(), seen.moved.Load(), seen.ask.Load(), seen.tryAgain.Load())
	if seen.moved.Load() == 0 || seen.ask.Load() == 0 || seen.tryAgain.Load() == 0 {
		t.Error("the load did not meet the move: the test shows nothing")
	}
	if b.exists(t, leaseKey) {
		t.Error("a lease was left behind")
	}
}

const workerLabel = "a worker"

// work acquires, renews and releases until it is late. Half of the workers wait, the others try.
func (g *grants) work(ctx context.Context, t *testing.T, m *lease.Manager, waits bool) {
	t.Helper()
	acquire := m.TryAcquire
	if waits {
		acquire = m.Acquire
	}
	for !g.late.Load() {
		l, err := acquire(ctx, "r", 20*time.Second, nil)
		if err != nil {
			g.refused(ctx, t, err)
			continue
		}
		if n := g.inside.Add(1); n != 1 {
			t.Errorf("%d holders", n)
		}
		g.mu.Lock()
		g.tokens = append(g.tokens, l.Token())
		g.mu.Unlock()
		if err := l.Renew(ctx, 20*time.Second); err != nil {
			g.refused(ctx, t, err)
		}
		g.inside.Add(-1)
		for err = l.Release(ctx); err != nil && ctx.Err() == nil; err = l.Release(ctx) {
			g.refused(ctx, t, err)
		}
		g.turns <- struct{}{}
	}
}

// refused checks the outcome of an attempt without success: another holder, or a cluster that is not ready.
func (g *grants) refused(ctx context.Context, t *testing.T, err error) {
	t.Helper()
	var held *lease.HeldError
	var answer redis.Error
	switch {
	case ctx.Err() != nil:
		t.Errorf("out of time: %v", err)
		g.late.Store(true)
	case errors.As(err, &held):
		if errors.Is(err, lease.ErrUnavailable) || held.Label != workerLabel && held.Label != "reserved" ||
			errors.As(err, &answer) {
			t.Errorf("not the words of a holder: %v", err)
		}
	case !errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrLost):
		t.Errorf("every node is there, and nobody lost anything, and yet: %v", err)
	}
}

func (g *grants) waitTurns(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-g.turns:
		case <-ctx.Done():
			t.Fatal("the work does not get on")
		}
	}
}

// moveSlot moves a slot to another primary key by key, each step under load.
func (b onCluster) moveSlot(ctx context.Context, t *testing.T, slot int, seen *redirections, look func()) {
	t.Helper()
	from, to, err := b.cluster.BeginMove(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	for step := 0; step < 4; step++ {
		before := seen.asked.Load()
		eventually(t, "load in the middle of the move", func() bool { return seen.asked.Load() > before+100 })
		look()
		if _, err := b.cluster.MoveKeys(ctx, slot, from, to, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.cluster.FinishMove(ctx, slot, from, to); err != nil {
		t.Fatal(err)
	}
}

// leaseHasItsToken checks that a lease, if there is one, carries a token that its counter has reached.
func (b onCluster) leaseHasItsToken(t *testing.T, leaseKey, counterKey string) {
	t.Helper()
	value, err := b.client.Get(t.Context(), leaseKey).Result()
	if errors.Is(err, redis.Nil) || strings.HasPrefix(value, "~") {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(value)
	tok, err := token.Parse(fields[1])
	if err != nil {
		t.Fatalf("a lease without a token: %v", err)
	}
	// Read after the lease, and counters only rise.
	counter, err := token.Parse(b.client.Get(t.Context(), counterKey).Val())
	if err != nil || counter < tok {
		t.Errorf("token %d, counter %d (%v)", tok, counter, err)
	}
}

// In a migrating slot, scripts with several keys are refused as long as one of the keys is missing. A holder can
// release its lease anyway, and the waiter gets it when the migration is over.
func TestAReleaseInASlotOnTheMove(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, nil)
	b := setupCluster(t, c, lease.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	alone := b.acquire(t, "{r}", time.Minute, nil)
	holder := b.acquire(t, "r", time.Minute, nil)
	got := b.waiting(t, "r")
	eventually(t, "the waiter to queue up", func() bool { return b.queueLength(t) == 1 })
	for name, l := range map[string]*lease.Lease{"{r}": alone, "r": holder} {
		leaseKey, _ := lease.KeysOf(b.prefix, name)
		slot := b.slot(t, leaseKey)
		from, to, err := c.BeginMove(ctx, slot)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.MoveKeys(ctx, slot, from, to, 1); err != nil {
			t.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		// If the server checks each key by itself, as Valkey does, it may be reserved for the waiter already.
		if key := b.rdb.Get(ctx, leaseKey).Val(); key != "" && !strings.HasPrefix(key, "~") {
			t.Errorf("%q is still held", name)
		}
		if err := c.FinishMove(ctx, slot, from, to); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case l := <-got:
		if l == nil || l.Release(ctx) != nil {
			t.Error("no lease")
		}
	case <-time.After(5 * time.Second):
		t.Error("the waiter sleeps on beside a free lease")
	}
}

// However long the migration takes, the waiter gets the lease when it is over, and need not look for it.
func TestAReleaseInASlotThatIsOnTheMoveForLong(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, nil)
	b := setupCluster(t, c, lease.Options{})
	clock := newFiringClock()
	m, err := lease.NewManager(b.client, lease.WithClock(lease.Options{Prefix: b.prefix}, clock.fake()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	holder, err := m.TryAcquire(ctx, "r", time.Minute, &lease.AcquireOptions{NoRenewal: true})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "the timer of the lease", 5*time.Second, clock.set)
	sleeper := setupCluster(t, c, lease.Options{})
	waits, err := lease.NewManager(sleeper.client, lease.WithClock(lease.Options{Prefix: b.prefix}, newHandClock().fake()))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *lease.Lease, 1)
	b.queueUp(ctx, t, waits, into(t, got))
	leaseKey, _ := lease.KeysOf(b.prefix, "r")
	slot := b.slot(t, leaseKey)
	from, to, err := c.BeginMove(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.MoveKey(ctx, b.prefix+":{r}:queue", from, to); err != nil {
		t.Fatal(err)
	}
	if err := holder.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for range 20 { // seconds
		within(t, "the timer of the next try", 5*time.Second, clock.set)
		clock.advance(time.Second)
	}
	notYet(t, got)
	if err := c.FinishMove(ctx, slot, from, to); err != nil {
		t.Fatal(err)
	}
	for patience := time.After(10 * time.Second); ; {
		select {
		case l := <-got:
			if l == nil || l.Release(ctx) != nil {
				t.Error("no lease")
			}
			return
		case <-clock.set:
			clock.advance(time.Second)
		case <-patience:
			t.Fatal("the waiter sleeps on beside a free lease")
		}
	}
}
