package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// whileGuarded runs try while a transaction of a lease that has been released is open, and returns what try returned.
func whileGuarded(t *testing.T, s *fencepost.Store, try func() error) error {
	t.Helper()
	var tried error
	l := acquire(t, s, "r", nil)
	err := s.Tx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		tried = try()
		return errors.New("over")
	}, l)
	wantErr(t, err, fencepost.ErrLost)
	return tried
}

// I9: if the lease is free and the fence is busy, an acquire with ClaimWait says so in time and leaves nothing behind.
func TestInvariant9_ClaimWaitBoundsTheWaitForGuardedTransactions(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, free func(t *testing.T) bool) {
		t.Helper()
		opts := &fencepost.AcquireOptions{ClaimWait: 200 * time.Millisecond}
		type acquireFunc = func(context.Context, string, *fencepost.AcquireOptions) (*fencepost.Lease, error)
		for name, acquire := range map[string]acquireFunc{
			"TryAcquire": s.TryAcquire, "Acquire": s.Acquire,
		} {
			began := time.Now()
			err := whileGuarded(t, s, func() error { return second(acquire(shortly(t.Context(), t), "r", opts)) })
			var busy *fencepost.FenceBusyError
			if wantErr(t, err, fencepost.ErrHeld); !errors.As(err, &busy) || busy.Resource != "r" {
				t.Errorf("%s: got %v", name, err)
			}
			if errors.Is(err, fencepost.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the fence is busy, and nothing else: %v", name, err)
			}
			if took := time.Since(began); took < opts.ClaimWait || took > 10*time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
			if !free(t) {
				t.Errorf("%s: the lease is still there", name)
			}
		}
	})
}

// The control: without ClaimWait the claim waits until ctx ends. Its error also says that the fence is busy.
func TestInvariant9Control_WithoutClaimWaitTryAcquireWaits(t *testing.T) {
	t.Parallel()
	withLeases(t, func(t *testing.T, s *fencepost.Store, _ func(t *testing.T) bool) {
		t.Helper()
		err := whileGuarded(t, s, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := second(s.TryAcquire(ctx, "r", nil))
			if ctx.Err() == nil {
				t.Error("it did not wait until ctx ended")
			}
			return err
		})
		var busy *fencepost.FenceBusyError
		wantErr(t, err, context.DeadlineExceeded, fencepost.ErrHeld)
		if !errors.As(err, &busy) || busy.Resource != "r" || errors.Is(err, fencepost.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		wantOneLine(t, err)
	})
}

// ClaimWait does not affect a claim that need not wait. A claim that had to wait leaves nothing in Redis.
func TestClaimWaitLeavesNothingInRedis(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	opts := &fencepost.AcquireOptions{ClaimWait: 2 * time.Second}
	err := whileGuarded(t, b.store, func() error {
		err := second(b.another(t).TryAcquire(t.Context(), "r", opts))
		if !b.free(t, "r") {
			t.Error("the lease key is still there")
		}
		return err
	})
	wantErr(t, err, fencepost.ErrHeld)
	l := b.acquire(t, "r", opts)
	if err := b.store.Tx(t.Context(), setValue("claimed"), l); err != nil {
		t.Error(err)
	}
}

// I9: a database that does not answer is not reported as a busy fence.
func TestInvariant9_ClaimWaitTellsABusyFenceFromADeadDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	if err := second(proxied.TryAcquire(t.Context(), "warm", nil)); err != nil {
		t.Fatal(err)
	}
	proxy.Hang()
	defer proxy.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := second(proxied.TryAcquire(ctx, "r", &fencepost.AcquireOptions{ClaimWait: 100 * time.Millisecond}))
	if wantErr(t, err, fencepost.ErrUnavailable, context.DeadlineExceeded); errors.Is(err, fencepost.ErrHeld) {
		t.Errorf("got %v", err)
	}
}

func TestANegativeClaimWaitIsInvalid(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	err := second(b.store.TryAcquire(t.Context(), "r", &fencepost.AcquireOptions{ClaimWait: -1}))
	wantErr(t, err, fencepost.ErrInvalid)
}
