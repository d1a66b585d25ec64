package fencepost_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// I5: a holder that stops inside a transaction, idle or in the middle of a result, blocks the next claim for MaxIdle at
// most, and its transaction is not committed.
func TestInvariant5_AHolderStoppedInsideATransactionIsEnded(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(ctx context.Context, tx pgx.Tx, stopped func()) error{
		"idle":      stopIdle,
		"in result": stopInResult,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopHolder(t, stop, 200*time.Millisecond)
		})
	}
}

// The control: with a long MaxIdle, the stopped holder is still there when the next claim gives up.
func TestInvariant5Control_WithoutMaxIdleAStoppedHolderBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{MaxIdle: time.Hour})
	l := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		return stopIdle(ctx, tx, func() {
			b.forget(t, "invoice-1")
			patience, cancel := context.WithTimeout(t.Context(), time.Second) // another's: no holder's context
			defer cancel()
			_, err := b.another(t).Acquire(patience, "invoice-1", nil)
			wantErr(t, err, context.DeadlineExceeded)
		})
	}, l)
	if err != nil {
		t.Error(err)
	}
}

func stopIdle(ctx context.Context, tx pgx.Tx, stopped func()) error {
	err := setValue("stopped")(ctx, tx)
	stopped()
	return err
}

// stopInResult stops while the server has more to send than the network takes.
func stopInResult(ctx context.Context, tx pgx.Tx, stopped func()) error {
	if err := setValue("stopped")(ctx, tx); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT repeat('x', 1000) FROM generate_series(1, 200000)`)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return errors.Join(errors.New("no row"), rows.Err())
	}
	stopped()
	rows.Close()
	return rows.Err()
}

func stopHolder(t *testing.T, stop func(ctx context.Context, tx pgx.Tx, stopped func()) error, maxIdle time.Duration) {
	t.Helper()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	inside, wake := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- b.store.TxWith(t.Context(), &fencepost.TxOptions{MaxIdle: maxIdle},
			func(ctx context.Context, tx pgx.Tx) error {
				return stop(ctx, tx, func() {
					close(inside)
					<-wake
				})
			}, l)
	}()
	<-inside
	b.forget(t, "invoice-1")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	began := time.Now()
	second, err := b.another(t).Acquire(ctx, "invoice-1", nil)
	if err != nil {
		t.Fatalf("the next claim did not get through: %v", err)
	}
	t.Logf("the next claim got through after %v", time.Since(began))
	defer func() { _ = second.Release(context.Background()) }()
	close(wake)
	err = <-done
	if err == nil || !errors.Is(err, fencepost.ErrLost) && !errors.Is(err, fencepost.ErrUnavailable) ||
		errors.Is(err, fencepost.ErrOutcomeUnknown) {
		t.Errorf("the stopped holder was told %v", err)
	}
	if r := b.read(t, "1"); r.Value != "0" {
		t.Errorf("the row is %+v", r)
	}
}

// forget makes Redis forget a lease, as an expiry or a failover would.
func (b *bundle) forget(t *testing.T, resource string) {
	t.Helper()
	if err := b.rdb.Del(t.Context(), b.leaseKey(resource)).Err(); err != nil {
		t.Error(err)
	}
}

// I5: 16 writers, whose short transactions under the old token overlap, do not starve a claim.
// TestInvariant5Control_WithoutTheGate, in package fence, takes the gate away.
func TestInvariant5_SixteenWritersDoNotStarveAClaim(t *testing.T) {
	t.Parallel()
	const writers, bound = 16, time.Second
	b := setup(t, fencepost.Options{})
	old := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	var claim time.Duration
	opts := b.opts
	opts.Events.ClaimWait = func(_ context.Context, _ string, _ fencepost.Token, took time.Duration) { claim += took }
	next, err := fencepost.New(testenv.PoolOn(t, b.pool.Config().ConnString()), b.rdb, &opts)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{}, writers)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			wantErr(t, keepWriting(t.Context(), b.store, old, written), fencepost.ErrStale)
		})
	}
	for range 10 * writers {
		<-written
	}
	b.forget(t, "invoice-1")
	acquire(t, next, "invoice-1", nil)
	wg.Wait()
	if claim > bound {
		t.Errorf("the claim took %v", claim)
	}
	t.Logf("the claim took %v", claim)
}

// keepWriting runs short transactions until one is refused.
func keepWriting(ctx context.Context, s *fencepost.Store, l *fencepost.Lease, written chan<- struct{}) error {
	for {
		err := s.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT pg_sleep(0.004)`)
			return err
		}, l)
		if err != nil {
			return err
		}
		select {
		case written <- struct{}{}:
		default: // the counting has ended
		}
	}
}
