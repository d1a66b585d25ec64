package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/token"
)

// drawSQL calls fencepost.draw as a program in another language does: by SQL alone.
func drawSQL(ctx context.Context, pool *pgxpool.Pool, nonce token.Nonce) (tok *int64, err error) {
	err = pool.QueryRow(ctx, `SELECT fencepost.draw('r', $1, 'another language')`, nonce.Hex()).Scan(&tok)
	return tok, err
}

func wantDrawn(t *testing.T, pool *pgxpool.Pool, nonce token.Nonce, want int64) {
	t.Helper()
	if tok, err := drawSQL(t.Context(), pool, nonce); err != nil || tok == nil || *tok != want {
		t.Fatalf("drawn: %v, %v; want %d", tok, err, want)
	}
}

// A draw continues above whatever was claimed, the same nonce draws the same token, and the result is a claim.
func TestADrawInSQL(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	first, second := token.NewNonce(), token.NewNonce()
	wantDrawn(t, pool, first, 1)
	wantDrawn(t, pool, first, 1)
	wantDrawn(t, pool, second, 2)
	wantDrawn(t, pool, second, 2)
	const enter = `SELECT fencepost.enter('r', $1, $2)`
	fencetest.Exec(t, pool, enter, 2, second.Hex())
	if _, err := pool.Exec(t.Context(), enter, 1, first.Hex()); err == nil {
		t.Error("an overtaken draw still guards")
	}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1<<40))
	wantDrawn(t, pool, second, 1<<40+1) // its own token is gone
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET token = $1`, int64(token.Max))
	if tok, err := drawSQL(t.Context(), pool, first); err != nil || tok != nil {
		t.Errorf("above the highest token there is %v, %v", tok, err)
	}
}

// If the transaction of a draw has an old snapshot, the draw fails and has to be repeated, and never returns a token
// that it has not claimed.
func TestADrawUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for _, name := range []string{"no fence yet", "a fence"} {
		err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, `SELECT count(*) FROM fencepost.fences`)
			if _, err := drawSQL(t.Context(), pool, token.NewNonce()); err != nil {
				t.Fatal(err)
			}
			var tok *int64
			return tx.QueryRow(t.Context(), `SELECT fencepost.draw('r', $1)`, token.NewNonce().Hex()).Scan(&tok)
		})
		if server := (*pgconn.PgError)(nil); !errors.As(err, &server) || server.Code != "40001" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
