package fence_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/token"
)

func draw(ctx context.Context, pool *pgxpool.Pool, resource string) (c fence.Claim, err error) {
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		c, err = fence.Draw(ctx, conn.Conn(), resource, token.NewNonce(), &fence.RaiseOptions{Label: "worker 7"})
		return err
	})
	return c, err
}

// I1, I2: each draw gets a different token, and each token is above the one before.
func TestInvariants1and2_DrawnTokensAreUniqueAndRise(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	var mu sync.Mutex
	var drawn []token.Token
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			last := token.Token(0)
			for range 10 {
				c, err := draw(t.Context(), pool, "r")
				if err != nil || c.Token <= last {
					t.Errorf("%d after %d, %v", c.Token, last, err)
					return
				}
				last = c.Token
				mu.Lock()
				drawn = append(drawn, c.Token)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(drawn)
	if len(slices.Compact(drawn)) != 80 || drawn[len(drawn)-1] != 80 {
		t.Errorf("80 draws gave %v", drawn)
	}
}

func TestADrawGoesOnAboveWhateverWasClaimed(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	first, err := draw(t.Context(), pool, "r")
	if err != nil || first.Token != 1 {
		t.Fatalf("%d, %v", first.Token, err)
	}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1<<40))
	second, err := draw(t.Context(), pool, "r")
	if err != nil || second.Token != 1<<40+1 {
		t.Fatalf("%d, %v", second.Token, err)
	}
	fencetest.WantStale(t, fencetest.Raise(t.Context(), pool, first), 1, second.Token)
	fencetest.MustRaise(t, pool, second) // its own
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET token = $1`, int64(token.Max))
	_, err = draw(t.Context(), pool, "r")
	fencetest.WantStale(t, err, token.Max, token.Max)
}

func TestDrawRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := fence.Draw(t.Context(), tx.Conn(), "r", token.NewNonce(), nil)
		return err
	})
	fencetest.WantErr(t, err, fence.ErrInvalid)
	_, err = draw(t.Context(), pool, "")
	fencetest.WantErr(t, err, fence.ErrInvalid)
	var b pgx.Batch
	_, err = pgclaim.QueueDraw(&b, pgclaim.Drawing{Resource: "r"})
	fencetest.WantErr(t, err, fence.ErrInvalid)
	_, err = pgclaim.QueueDraw(&b, pgclaim.Drawing{Resource: "r", Nonce: token.NewNonce(), Label: "\x00"})
	fencetest.WantErr(t, err, fence.ErrInvalid)
}

// I3: a draw waits for the writes guarded by the claim before it, for as long as its caller does, and then overtakes
// that claim.
func TestADrawWaitsForGuardedTransactions(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old, err := draw(t.Context(), pool, "r")
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := fence.Enter(t.Context(), tx, old); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if c, err := draw(short, pool, "r"); err == nil {
			t.Errorf("drew %d beside a guard", c.Token)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := draw(t.Context(), pool, "r"); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return fence.Enter(t.Context(), tx, old) })
	fencetest.WantErr(t, err, fence.ErrStale)
}

// A claim drawn in a transaction guards that transaction, and counts once it commits.
func TestAQueuedDrawCountsWithItsTransaction(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	rolledBack := errors.New("rolled back")
	for _, why := range []error{rolledBack, nil} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			var b pgx.Batch
			drawn, err := pgclaim.QueueDraw(&b, pgclaim.Drawing{
				Resource: "r", Nonce: token.NewNonce(), Wait: time.Minute, MaxIdle: time.Minute,
			})
			if err != nil {
				return err
			}
			if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
				return err
			}
			if drawn.Claim.Token != 1 || drawn.XID == "" {
				t.Errorf("drew %+v", drawn)
			}
			var entered string
			if err := tx.QueryRow(t.Context(), `SELECT current_setting('fencepost.entered')`).
				Scan(&entered); err != nil ||
				entered == "" {
				t.Errorf("entered %q, %v", entered, err)
			}
			return why
		})
		if !errors.Is(err, why) {
			t.Error(err)
		}
	}
	if c, err := draw(t.Context(), pool, "r"); err != nil || c.Token != 2 {
		t.Errorf("drew %d, %v", c.Token, err)
	}
}
