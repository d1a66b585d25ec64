package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
)

func TestAcquireGrantsAndClaims(t *testing.T) {
	t.Parallel()
	var waited, claimed int
	b := setup(t, fencepost.Options{Label: "worker 7", Events: fencepost.Events{
		Acquired:  func(context.Context, string, fencepost.Token, time.Duration) { waited++ },
		ClaimWait: func(context.Context, string, fencepost.Token, time.Duration) { claimed++ },
	}})
	l := b.acquire(t, "invoice-1", nil)
	var tok fencepost.Token
	var label string
	err := b.pool.QueryRow(t.Context(), `SELECT token, label FROM fencepost.fence WHERE resource = $1`,
		b.opts.Namespace+":invoice-1").Scan(&tok, &label)
	if err != nil || tok != l.Token() || label != "worker 7" {
		t.Errorf("the fence carries %d by %q, %v; the lease is %d", tok, label, err, l.Token())
	}
	if l.Resource() != "invoice-1" || l.Claim().Token != tok || l.Err() != nil || l.Remaining() <= 0 {
		t.Errorf("the lease is %+v, %v left", l.Claim(), l.Remaining())
	}
	if waited != 1 || claimed != 1 {
		t.Errorf("%d acquired and %d claim events", waited, claimed)
	}
	_, err = b.store.TryAcquire(t.Context(), "invoice-1", nil)
	var held *fencepost.HeldError
	if !errors.As(err, &held) || held.Label != "worker 7" {
		t.Errorf("got %v", err)
	}
	if err := l.Release(t.Context()); err != nil || !b.free(t, "invoice-1") {
		t.Errorf("release: %v", err)
	}
}

func TestTheLeaseIsRenewedWhileItIsHeld(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second // of which a busy machine may take its part
	b := setup(t, fencepost.Options{TTL: ttl, RenewEvery: ttl / 20})
	l := b.acquire(t, "invoice-1", nil)
	select {
	case <-l.Done():
		t.Fatalf("lost: %v", l.Err())
	case <-time.After(ttl + ttl/4): // only renewals can have kept it
	}
	if err := b.store.Tx(t.Context(), setValue("still held"), l); err != nil {
		t.Error(err)
	}
}

func TestNamespacesKeepResourcesApart(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	opts := b.opts
	opts.Namespace += "-2"
	other, err := fencepost.New(b.pool, b.rdb, &opts)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := b.acquire(t, "r", nil), acquire(t, other, "r", nil)
	if mine.Token() != 1 || theirs.Token() != 1 || mine.Claim().Resource == theirs.Claim().Resource {
		t.Errorf("%+v and %+v", mine.Claim(), theirs.Claim())
	}
}

func TestWhatCannotBeIsRefusedBeforeAnyTraffic(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { _ = ring.Close() }()
	for name, err := range map[string]error{
		"no pool":     second(fencepost.New(nil, b.rdb, nil)),
		"no client":   second(fencepost.New(b.pool, nil, nil)),
		"ring":        second(fencepost.New(b.pool, ring, nil)),
		"namespace":   second(fencepost.New(b.pool, b.rdb, &fencepost.Options{Namespace: "a:b"})),
		"long":        second(fencepost.New(b.pool, b.rdb, &fencepost.Options{Namespace: strings.Repeat("x", 65)})),
		"negative":    second(fencepost.New(b.pool, b.rdb, &fencepost.Options{TTL: -1})),
		"no renewal":  second(fencepost.New(b.pool, b.rdb, &fencepost.Options{TTL: time.Second, RenewEvery: time.Second})),
		"counter":     second(fencepost.New(b.pool, b.rdb, &fencepost.Options{CounterIdle: time.Hour})),
		"long idle":   second(fencepost.New(b.pool, b.rdb, &fencepost.Options{MaxIdle: 25 * time.Hour})),
		"idle":        second(fencepost.New(b.pool, b.rdb, &fencepost.Options{MaxIdle: -1})),
		"empty":       second(b.store.Acquire(t.Context(), "", nil)),
		"U+0000":      second(b.store.Acquire(t.Context(), "a\x00b", nil)),
		"not UTF-8":   second(b.store.Acquire(t.Context(), "\xff", nil)),
		"long name":   second(b.store.Acquire(t.Context(), strings.Repeat("x", 513), nil)),
		"TTL":         second(b.store.Acquire(t.Context(), "r", &fencepost.AcquireOptions{TTL: time.Millisecond})),
		"renew every": second(b.store.Acquire(t.Context(), "r", &fencepost.AcquireOptions{RenewEvery: time.Hour})),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var fences int
	if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM fencepost.fence`).
		Scan(&fences); err != nil ||
		fences != 0 {
		t.Errorf("%d fences, %v", fences, err)
	}
}

func second[T any](_ T, err error) error { return err }

// A claim that waits for the previous holder's transaction waits no longer than the caller, which then holds nothing.
func TestAcquireEndsWithItsContextWhileItClaims(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	a := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	inside, wake := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			close(inside)
			<-wake
			return setValue("A")(ctx, tx)
		}, a)
		if err != nil {
			t.Errorf("the guarded transaction that was there first: %v", err)
		}
	})
	<-inside
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-1")).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := b.another(t).Acquire(ctx, "invoice-1", nil)
	// The lease is free, and the fence is busy.
	if wantErr(t, err, context.DeadlineExceeded, fencepost.ErrHeld); errors.Is(err, fencepost.ErrStale) {
		t.Errorf("got %v", err)
	}
	if !b.free(t, "invoice-1") {
		t.Error("the lease without a claim was kept")
	}
	close(wake)
	wg.Wait()
}

func TestAcquireWithoutMigrationsHoldsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `DROP SCHEMA fencepost CASCADE`)
	_, err := b.store.Acquire(t.Context(), "invoice-1", nil)
	if wantErr(t, err, fencepost.ErrUnavailable); errors.Is(err, fencepost.ErrHeld) {
		t.Errorf("got %v", err)
	}
	if !b.free(t, "invoice-1") {
		t.Error("the lease without a claim was kept")
	}
}

// A claim value can be handed to another process, which writes in the holder's name until it is overtaken.
func TestAClaimWorksInOtherHands(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	if err := writeGuarded(t.Context(), b, l.Claim(), "by proxy"); err != nil {
		t.Error(err)
	}
	if err := fence.Update(
		t.Context(),
		b.pool,
		invoices,
		l.Token(),
		fencepost.Key{"1"},
		fencepost.Set{"value": "bare"},
	); err != nil {
		t.Error(err)
	}
}
