package fence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var rows = fence.Table{Schema: "app", Name: "item", Key: []string{"id"}}

const createRows = `
	CREATE SCHEMA app;
	CREATE TABLE app.item (
		id bigint PRIMARY KEY, value text NOT NULL DEFAULT '', updated_at timestamptz NOT NULL DEFAULT now(),
		last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0));
	INSERT INTO app.item (id) VALUES (1), (2), (3);`

// setup gives a database of the test's own, with fencepost's migrations and the table rows.
func setup(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := testenv.Pool(t)
	exec(t, pool, createRows)
	return pool
}

func exec(t *testing.T, db fence.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// row is what the tests look at.
type row struct {
	Value   string
	Token   token.Token
	Updated time.Time
}

func read(t *testing.T, db fence.DB, id int) row {
	t.Helper()
	var r row
	err := db.QueryRow(t.Context(), `SELECT value, last_fencing_token, updated_at FROM app.item WHERE id = $1`, id).
		Scan(&r.Value, &r.Token, &r.Updated)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func claimOf(resource string, tok token.Token) fence.Claim {
	return fence.Claim{Resource: resource, Token: tok, Nonce: token.NewNonce()}
}

// raise makes a claim on a connection of the pool.
func raise(ctx context.Context, pool *pgxpool.Pool, c fence.Claim) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fence.Raise(ctx, conn.Conn(), c, &fence.RaiseOptions{Label: "test"})
}

func mustRaise(t *testing.T, pool *pgxpool.Pool, c fence.Claim) fence.Claim {
	t.Helper()
	if err := raise(t.Context(), pool, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// guarded writes a value in a transaction under a claim.
func guarded(ctx context.Context, pool *pgxpool.Pool, c fence.Claim, id int, value string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := fence.Guard(ctx, tx, c); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE app.item SET value = $2, last_fencing_token = $3 WHERE id = $1`, id, value, int64(c.Token))
		return err
	})
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

func wantStale(t *testing.T, err error, tok, current token.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) || stale.Token != tok || stale.Current != current {
		t.Errorf("got error %v, want token %d refused as stale at %d", err, tok, current)
	}
}
