package fencepost_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

func TestMaxHoldEndsALeaseOfAStore(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{RenewEvery: 20 * time.Millisecond})
	control := b.acquire(t, "control", nil)
	l := b.acquire(t, "r", &fencepost.AcquireOptions{MaxHold: time.Second})
	if l.Remaining() > time.Second {
		t.Errorf("%v remain", l.Remaining())
	}
	wantEnd(t, l, lease.ReasonMaxHold)
	if control.Err() != nil {
		t.Error(control.Err())
	}
}

// A job that hangs loses its lease. A job that reports progress keeps it.
func TestALeaseOfAStoreIsRenewedOnlyWhileTheWorkGetsOn(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	progress := func(ttl time.Duration) *fencepost.AcquireOptions {
		return &fencepost.AcquireOptions{TTL: ttl, RenewEvery: 50 * time.Millisecond, ProgressEvery: ttl / 2}
	}
	alive := b.acquire(t, "alive", progress(time.Second))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-time.After(10 * time.Millisecond):
				alive.Progress()
			case <-stop:
				return
			}
		}
	}()
	wantEnd(t, b.acquire(t, "hung", progress(2*time.Second)), lease.ReasonStalled)
	if alive.Err() != nil {
		t.Error(alive.Err())
	}
}

func wantEnd(t *testing.T, l *fencepost.Lease, reason lease.Reason) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("not lost")
	}
	var lost *fencepost.LostError
	if err := l.Err(); !errors.As(err, &lost) || lost.Reason != reason {
		t.Errorf("got %v, want the reason %q", err, reason)
	}
}

// A server without replicas cannot confirm a grant, so a store with Durability gets no lease from it.
func TestDurabilityOfAStoreHasGrantsConfirmed(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testenv.Pool(t), testenv.RedisOn(t, testenv.OwnRedis(t).URL()), fencepost.Options{})
	b.acquire(t, "control", nil)
	asking := b.opts
	asking.Durability = lease.Durability{Replicas: 1, Timeout: 10 * time.Millisecond}
	s, err := fencepost.New(b.pool, b.rdb, &asking)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.TryAcquire(t.Context(), "r", nil)
	if wantErr(t, err, fencepost.ErrUnavailable); !b.free(t, "r") {
		t.Error("the grant that was not confirmed is still there")
	}
}

// down is a Redis that refuses every request, and counts how often it is asked for a lease.
type down struct {
	acquire string // the hash of the script that acquires
	asked   atomic.Int64
	enough  chan struct{} // closed once that was five times
}

func newDown(t *testing.T) (*redis.Client, *down) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	source, err := os.ReadFile("lease/lua/acquire.lua")
	if err != nil {
		t.Fatal(err)
	}
	d := &down{acquire: redis.NewScript(string(source)).Hash(), enough: make(chan struct{})}
	client.AddHook(d)
	return client, d
}

func (d *down) refuse(cmds ...redis.Cmder) error {
	err := errors.New("down")
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) > 1 && args[1] == d.acquire && d.asked.Add(1) == 5 {
			close(d.enough)
		}
		cmd.SetErr(err)
	}
	return err
}

func (d *down) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *down) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return d.refuse(cmd) }
}

func (d *down) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return d.refuse(cmds...) }
}

// While Redis is down, a store asks again every PollEvery and no sooner. One store has the default, the other an hour.
func TestAStoreAsksAgainEveryPollEvery(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	acquire := func(opts *fencepost.Options) *down {
		client, d := newDown(t)
		s, err := fencepost.New(pool, client, opts)
		if err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			_, err := s.Acquire(ctx, "r", nil)
			wantErr(t, err, fencepost.ErrUnavailable, context.Canceled)
		})
		return d
	}
	patient := acquire(&fencepost.Options{PollEvery: time.Hour})
	for patient.asked.Load() == 0 { // the others begin once it waits
		<-time.After(time.Millisecond)
	}
	<-acquire(nil).enough
	<-acquire(&fencepost.Options{PollEvery: time.Millisecond}).enough
	if n := patient.asked.Load(); n != 1 {
		t.Errorf("asked %d times within its PollEvery", n)
	}
	stop()
	waiting.Wait()
}

func TestSettingsOfRedisAreRefusedWhereTheyCannotBe(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	nodes := []redis.UniversalClient{
		testenv.RedisOn(
			t,
			"redis://127.0.0.1:1",
		),
		testenv.RedisOn(t, "redis://127.0.0.1:2"),
		testenv.RedisOn(t, "redis://127.0.0.1:3"),
	}
	durable := &fencepost.Options{Durability: lease.Durability{Replicas: 1}}
	_, err := fencepost.NewQuorum(pool, nodes, durable)
	wantErr(t, err, fencepost.ErrInvalid)
	for _, opts := range []*fencepost.Options{durable, {PollEvery: time.Second}, {NoQueue: true}} {
		_, err = fencepost.NewAdvisory(pool, opts)
		wantErr(t, err, fencepost.ErrInvalid)
	}
	_, err = fencepost.New(pool, nodes[0], &fencepost.Options{PollEvery: -1})
	wantErr(t, err, fencepost.ErrInvalid)
	s := advisoryStore(t, pool, nil)
	for _, opts := range []*fencepost.AcquireOptions{{MaxHold: time.Second}, {ProgressEvery: time.Second}} {
		_, err = s.Acquire(t.Context(), "r", opts)
		wantErr(t, err, fencepost.ErrInvalid)
	}
	wantErr(t, acquire(t, s, "r", nil).Renew(t.Context(), time.Minute), fencepost.ErrInvalid)
}
