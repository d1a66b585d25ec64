package fencepost_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// sentToRedis counts the commands that a client is given.
type sentToRedis struct{ commands atomic.Int64 }

func (*sentToRedis) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *sentToRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (c *sentToRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.commands.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// I8: the first call does the work under a lease and releases it. A recorded result is returned without a lease, even
// while another holds it.
func TestInvariant8_DoOnceAcquiresOnlyForWorkThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	client, sent, calls := testenv.Redis(t), &sentToRedis{}, 0
	client.AddHook(sent)
	s, err := fencepost.New(b.pool, client, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	do := func() (fencepost.OnceResult[receipt], error) {
		return fencepost.DoOnce(t.Context(), s, "invoice-1", "k", toAnn, pay(&calls))
	}
	first, err := do()
	if err != nil || first.Recorded || first.Value.Balance != "10" || calls != 1 {
		t.Fatalf("%+v, %v after %d calls", first, err, calls)
	}
	if sent.commands.Load() == 0 || !b.free(t, "invoice-1") { // the control: the count sees what is sent
		t.Errorf("%d commands; the lease is free: %v", sent.commands.Load(), b.free(t, "invoice-1"))
	}
	acquire(t, b.another(t), "invoice-1", nil) // a recorded result does not wait for the holder
	before := sent.commands.Load()
	again, err := do()
	if err != nil || !again.Recorded || again.Value != first.Value || calls != 1 {
		t.Errorf("%+v, %v after %d calls", again, err, calls)
	}
	if n := sent.commands.Load() - before; n != 0 {
		t.Errorf("a recorded key sent %d commands to Redis", n)
	}
}

// I8: of several simultaneous calls one does the work, over every kind of store, and each gets the result.
func TestInvariant8_DoOnceOfManyAtOnce(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, free func(t *testing.T) bool) {
		t.Helper()
		var calls atomic.Int32
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				r, err := fencepost.DoOnce(t.Context(), s, "r", "k", toAnn, func(context.Context, pgx.Tx) (int32, error) {
					return calls.Add(1), nil
				})
				if err != nil || r.Value != 1 {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		if callers.Wait(); calls.Load() != 1 || !free(t) {
			t.Errorf("the work was done %d times", calls.Load())
		}
	})
}

// However the work ends, the lease is released. Work that failed is not recorded.
func TestDoOnceReleasesAndRecordsNothingThatFailed(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	why, ctx := errors.New("the work failed"), t.Context()
	_, err := fencepost.DoOnce(ctx, b.store, "r", "k", nil, func(context.Context, pgx.Tx) (int, error) { return 0, why })
	if wantErr(t, err, why); !b.free(t, "r") {
		t.Error("the lease is still there")
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = fencepost.DoOnce(ctx, b.store, "r", "k", nil, func(context.Context, pgx.Tx) (int, error) { panic(why) })
	}()
	if !b.free(t, "r") {
		t.Error("the lease is still there after a panic")
	}
	r, err := fencepost.DoOnce(ctx, b.store, "r", "k", nil, func(context.Context, pgx.Tx) (int, error) { return 7, nil })
	if err != nil || r.Recorded || r.Value != 7 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDoOnceRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx := t.Context()
	for name, err := range map[string]error{
		"no store":       second(fencepost.DoOnce(ctx, nil, "r", "k", nil, nothing)),
		"no function":    second(fencepost.DoOnce[int](ctx, b.store, "r", "k", nil, nil)),
		"no resource":    second(fencepost.DoOnce(ctx, b.store, "", "k", nil, nothing)),
		"no key":         second(fencepost.DoOnce(ctx, b.store, "r", "", nil, nothing)),
		"not a request":  second(fencepost.DoOnce(ctx, b.store, "r", "k", make(chan int), nothing)),
		"not a resource": second(fencepost.DoOnce(ctx, b.store, "\x00", "k", nil, nothing)),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := second(fencepost.DoOnce(ctx, b.store, "r", "k", 1, nothing)); err != nil {
		t.Fatal(err)
	}
	wantErr(t, second(fencepost.DoOnce(ctx, b.store, "r", "k", 2, nothing)), fencepost.ErrKeyReused)
	wantErr(t, second(fencepost.DoOnce(ctx, b.store, "s", "k", 1, nothing)), fencepost.ErrKeyReused)
	err := b.store.Do(ctx, "r", func(ctx context.Context, _ pgx.Tx) error {
		wantHeldByCaller(t, "DoOnce", second(fencepost.DoOnce(ctx, b.store, "r", "k", 1, nothing)))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// I9: the first call with a key is still open under a lease that was lost. A repeated call reports that the fence is
// busy. It must not wait for the key's row before it has the claim.
func TestInvariant9_DoOnceWaitsForTheClaimBeforeItsKey(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	entered, leave, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- second(fencepost.DoOnce(t.Context(), b.store, "r", "k", toAnn, func(context.Context, pgx.Tx) (int, error) {
			close(entered)
			<-leave
			return 1, nil
		}))
	}()
	<-entered
	if err := b.rdb.Del(t.Context(), b.leaseKey("r")).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := second(fencepost.DoOnce(ctx, b.another(t), "r", "k", toAnn, func(context.Context, pgx.Tx) (int, error) {
		t.Error("the work is done twice at once")
		return 2, nil
	}))
	var busy *fencepost.FenceBusyError
	if wantErr(t, err, fencepost.ErrHeld); !errors.As(err, &busy) || errors.Is(err, fencepost.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	close(leave)
	if err := <-ended; err != nil && !errors.Is(err, fencepost.ErrLost) {
		t.Errorf("the first call: %v", err)
	}
}
