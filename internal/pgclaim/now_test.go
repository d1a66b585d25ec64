package pgclaim_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/token"
)

// now asks claim_now by itself. busy means that it did not answer.
func now(t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, c pgclaim.Claim,
) (raised pgclaim.Raised) {
	t.Helper()
	var claimed *bool
	var current *int64
	err := db.QueryRow(t.Context(), `SELECT claimed, current FROM fencepost.claim_now($1, $2, $3::text::uuid)`,
		c.Resource, int64(c.Token), c.Nonce.Hex()).Scan(&claimed, &current)
	switch {
	case err != nil:
		t.Fatal(err)
	case claimed == nil:
		return pgclaim.Raised{Busy: true}
	}
	return pgclaim.Raised{Claimed: *claimed, Current: token.Token(*current)}
}

// claim_now answers as claim does, or not at all.
func TestAClaimThatDoesNotWaitIsAnsweredAsOneThatDoes(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	const step = token.Token(1) << 40
	for resource, tok := range map[string]token.Token{"below": 3, "equal": 5, "above": 9, "far": 1, "ours": 5} {
		for _, way := range []string{"waits ", "now "} {
			fencetest.MustRaise(t, pool, fencetest.ClaimOf(way+resource, tok))
		}
	}
	for resource, tok := range map[string]token.Token{
		"new": 5, "newest": step, "new, far": step + 1, "below": 5, "equal": 5, "above": 5,
		"far": step + 2, "highest": token.Max,
	} {
		want, got := one(t, pool, fencetest.ClaimOf("waits "+resource, tok)),
			now(t, pool, fencetest.ClaimOf("now "+resource, tok))
		if want != got {
			t.Errorf("%s: %+v, and claim says %+v", resource, got, want)
		}
	}
	ours := fencetest.MustRaise(t, pool, fencetest.ClaimOf("ours", 7))
	if got := now(t, pool, ours); got != (pgclaim.Raised{Claimed: true, Current: 7}) {
		t.Errorf("the same claim again: %+v", got)
	}
}

// It does not wait for a guarded transaction, and makes no claim in a statement that cannot see what it waited for.
func TestAClaimThatDoesNotWaitIsNotMade(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	above := fencetest.ClaimOf("r", 6)
	inTx := func(level pgx.TxIsoLevel, fn func(tx pgx.Tx)) {
		err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			fn(tx)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	inTx(pgx.ReadCommitted, func(tx pgx.Tx) {
		if err := pgclaim.Enter(t.Context(), tx, c); err != nil {
			t.Fatal(err)
		}
		if got := now(t, pool, above); !got.Busy {
			t.Errorf("beside a guarded transaction: %+v", got)
		}
	})
	inTx(pgx.RepeatableRead, func(tx pgx.Tx) {
		if got := now(t, tx, above); !got.Busy {
			t.Errorf("at REPEATABLE READ: %+v", got)
		}
	})
	if got := one(t, pool, c); !got.Claimed {
		t.Errorf("the fence has moved: %+v", got)
	}
}

// draw draws by draw_marked in a transaction that commits or not. 0 means that nothing was drawn.
func draw(t *testing.T, pool *pgxpool.Pool, resource string, key int64, commit bool) (drawn token.Token) {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var tok *int64
	err = tx.QueryRow(t.Context(), `SELECT token FROM fencepost.draw_marked($1, $2::text::uuid, 'x', $3, 60000)`,
		resource, token.NewNonce().Hex(), key).Scan(&tok)
	if err != nil {
		t.Fatal(err)
	}
	if commit {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if tok == nil {
		return 0
	}
	return token.Token(*tok)
}

// A drawing takes the token one above the fence's, once it commits; and none beside a lock, a guard or a claim.
func TestADrawingThatDoesNotWait(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for i, want := range []token.Token{1, 1, 2, 2} {
		if got := draw(t, pool, "r", 1, i%2 == 1); got != want {
			t.Errorf("drawing %d took %d, not %d", i, got, want)
		}
	}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("highest", 1))
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET token = 9223372036854775807 WHERE resource = 'highest'`)
	if got := draw(t, pool, "highest", 2, true); got != 0 {
		t.Errorf("%d above the highest", got)
	}
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("guarded", 5))
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(3)`); err != nil {
			return err
		}
		if got := draw(t, pool, "free", 3, true); got != 0 {
			t.Errorf("%d beside the lock", got)
		}
		if err := pgclaim.Enter(t.Context(), tx, c); err != nil {
			return err
		}
		if got := draw(t, pool, "guarded", 4, true); got != 0 {
			t.Errorf("%d beside a guarded transaction", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if free, after := draw(t, pool, "free", 3, true), draw(t, pool, "guarded", 4, true); free != 1 || after != 6 {
		t.Errorf("afterwards %d and %d, not 1 and 6", free, after)
	}
}
