package fencepost_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
)

// sealing runs a test over each kind of store whose leases can be held.
func sealing(t *testing.T, test func(t *testing.T, pool *pgxpool.Pool, open opener)) {
	t.Helper()
	pool, open := kinds(t)
	for _, name := range []string{"New", "NewQuorum", "NewAdvisory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, pool, open[name])
		})
	}
}

// writeAs writes as a process that was handed a claim value.
func writeAs(ctx context.Context, pool *pgxpool.Pool, c fencepost.Claim) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fence.Enter(ctx, tx, c); err != nil {
			return err
		}
		return setValue("handed over")(ctx, tx)
	})
}

// I3: after a sealed release no copy of the claim is accepted, nor one with the next token. The control: after an
// ordinary release the copy is accepted, until the next holder claims.
func TestInvariant3_ASealedReleaseEndsEveryCopyOfTheClaim(t *testing.T) {
	t.Parallel()
	sealing(t, func(t *testing.T, pool *pgxpool.Pool, open opener) {
		t.Helper()
		s, ctx := openStore(open, ""), t.Context()
		l := acquire(t, s, "sealed", nil)
		c := l.Claim()
		if err := writeAs(ctx, pool, c); err != nil {
			t.Errorf("under the lease: %v", err)
		}
		if err := l.ReleaseSealed(ctx); err != nil {
			t.Error(err)
		}
		wantErr(t, writeAs(ctx, pool, c), fencepost.ErrStale)
		c.Token++
		wantErr(t, writeAs(ctx, pool, c), fencepost.ErrStale)

		l = acquire(t, s, "plain", nil)
		c = l.Claim()
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		if err := writeAs(ctx, pool, c); err != nil {
			t.Errorf("the control, after an ordinary release: %v", err)
		}
		acquire(t, s, "plain", nil)
		wantErr(t, writeAs(ctx, pool, c), fencepost.ErrStale)
	})
}

// The next grant's number is above the seal at once, so it need not be lifted.
func TestTheGrantAfterASealIsAboveIt(t *testing.T) {
	t.Parallel()
	sealing(t, func(t *testing.T, pool *pgxpool.Pool, open opener) {
		t.Helper()
		var count counts
		s := openStore(open, "", count.events())
		l := acquire(t, s, "r", nil)
		sealed := l.Token() + 1
		for range 2 {
			if err := l.ReleaseSealed(t.Context()); err != nil {
				t.Error(err)
			}
		}
		var carried fencepost.Token
		err := pool.QueryRow(t.Context(), `SELECT token FROM fencepost.fence WHERE resource = $1`, l.Claim().Resource).
			Scan(&carried)
		if err != nil || carried != sealed {
			t.Errorf("the fence carries %d, %v, want %d", carried, err, sealed)
		}
		next := acquire(t, s, "r", nil)
		if next.Token() != sealed+1 {
			t.Errorf("the next token is %d, the seal %d", next.Token(), sealed)
		}
		if err := s.Tx(t.Context(), setValue("next"), next); err != nil {
			t.Error(err)
		}
		count.want(t, 0, 0)
	})
}

// A seal waits for writes in progress under the lease, for at most SettleFor. The lease is released in any case.
func TestASealWaitsForGuardedTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{SettleFor: 500 * time.Millisecond})
	l := b.acquire(t, "r", nil)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := fence.Enter(t.Context(), tx, l.Claim()); err != nil {
			return err
		}
		err := l.ReleaseSealed(t.Context())
		wantErr(t, err, fencepost.ErrUnavailable)
		if errors.Is(err, fencepost.ErrLost) || errors.Is(err, fencepost.ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
		if !b.free(t, "r") {
			t.Error("the lease was not released")
		}
		return setValue("written before the seal would have been")(t.Context(), tx)
	})
	if err != nil {
		t.Error(err)
	}
	next := b.acquire(t, "r", nil)
	done := make(chan error, 1)
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := fence.Enter(t.Context(), tx, next.Claim()); err != nil {
			return err
		}
		go func() { done <- next.ReleaseSealed(context.Background()) }()
		return setValue("in time")(t.Context(), tx)
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Error(err)
	}
	wantErr(t, writeAs(t.Context(), b.pool, next.Claim()), fencepost.ErrStale)
}

// Sealing a lease that was overtaken returns ErrLost and changes nothing of the next holder's.
func TestASealOfALeaseThatWasOvertaken(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	lost := b.acquireBriefly(t, "r")
	<-lost.Done()
	next := acquire(t, b.another(t), "r", nil)
	wantErr(t, lost.ReleaseSealed(t.Context()), fencepost.ErrLost)
	if err := b.store.Tx(t.Context(), setValue("x"), lost); !errors.Is(err, fencepost.ErrLost) {
		t.Error(err)
	}
	if err := writeAs(t.Context(), b.pool, next.Claim()); err != nil {
		t.Errorf("the next holder: %v", err)
	}
}

// Several calls at once make one seal, and each of them returns its success.
func TestSealsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for i := range 10 {
		l := b.acquire(t, "r", nil)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if err := l.ReleaseSealed(t.Context()); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
			})
		}
		calls.Wait()
		wantErr(t, writeAs(t.Context(), b.pool, l.Claim()), fencepost.ErrStale)
	}
}

// C38: a seal inside a transaction under its own lease is refused at once, and changes nothing. The control: if ctx
// does not show the transaction, the seal waits for it.
func TestCase38_ASealInsideItsOwnTransactionIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{SettleFor: 20 * time.Minute})
	l, other := b.acquire(t, "r", nil), b.acquire(t, "s", nil)
	err := b.store.Tx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
		wantHeldByCaller(t, "Tx", l.ReleaseSealed(ctx))
		wantHeldByCaller(t, "the second lease", other.ReleaseSealed(context.WithoutCancel(ctx)))
		return b.store.Join(ctx, "s", func(ctx context.Context, tx pgx.Tx) error {
			wantHeldByCaller(t, "Join", l.ReleaseSealed(ctx))
			return setValue("kept")(ctx, tx)
		})
	}, l, other)
	if r := b.read(t, "1"); err != nil || l.Err() != nil || r.Value != "kept" {
		t.Errorf("%v, the lease %v, the row %+v", err, l.Err(), r)
	}
	if err := l.ReleaseSealed(t.Context()); err != nil {
		t.Errorf("after the transaction: %v", err)
	}
}

func TestCase38Control_ASealThatIsNotShownTheTransactionWaitsForIt(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{SettleFor: 200 * time.Millisecond})
	l := b.acquire(t, "r", nil)
	err := b.store.Tx(t.Context(), func(context.Context, pgx.Tx) error {
		began := time.Now()
		wantErr(t, l.ReleaseSealed(t.Context()), fencepost.ErrUnavailable)
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("after %v", took)
		}
		return nil
	}, l)
	wantErr(t, err, fencepost.ErrLost)
}
