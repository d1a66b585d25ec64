// Package fencetest holds what the tests of the PostgreSQL side share: a table of rows, claims, writes and
// expectations. Only tests import it.
package fencetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// Rows is the table that the tests write to.
var Rows = pgtable.Table{Schema: "app", Name: "item", Key: []string{"id"}}

// CreateRows creates Rows, with rows 1 to 3.
const CreateRows = `
	CREATE SCHEMA app;
	CREATE TABLE app.item (
		id bigint PRIMARY KEY, value text NOT NULL DEFAULT '', updated_at timestamptz NOT NULL DEFAULT now(),
		last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0));
	INSERT INTO app.item (id) VALUES (1), (2), (3);`

// Setup returns a database for the test, with fencepost's migrations and the table Rows.
func Setup(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := testenv.Pool(t)
	Exec(t, pool, CreateRows)
	return pool
}

// Exec runs a statement that must succeed.
func Exec(t *testing.T, db pgsession.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Row is the part of a row that tests check.
type Row struct {
	Value   string
	Token   token.Token
	Updated time.Time
}

// Read returns a row of Rows.
func Read(t *testing.T, db pgsession.DB, id int) Row {
	t.Helper()
	var r Row
	err := db.QueryRow(t.Context(), `SELECT value, last_fencing_token, updated_at FROM app.item WHERE id = $1`, id).
		Scan(&r.Value, &r.Token, &r.Updated)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ClaimOf returns a claim with a new nonce. The claim has not been made.
func ClaimOf(resource string, tok token.Token) pgclaim.Claim {
	return pgclaim.Claim{Resource: resource, Token: tok, Nonce: token.NewNonce()}
}

// Raise makes a claim on a connection of the pool.
func Raise(ctx context.Context, pool *pgxpool.Pool, c pgclaim.Claim) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pgclaim.Raise(ctx, conn.Conn(), c, &pgclaim.RaiseOptions{Label: "test"})
}

// MustRaise makes a claim, which must succeed.
func MustRaise(t *testing.T, pool *pgxpool.Pool, c pgclaim.Claim) pgclaim.Claim {
	t.Helper()
	if err := Raise(t.Context(), pool, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// Second returns the error of a call whose result does not matter.
func Second[T any](_ T, err error) error { return err }

// WantErr requires that err matches all of want.
func WantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got error %v, want one that matches %v", err, w)
		}
	}
}

// WantStale requires that a token was refused as stale, and by which token.
func WantStale(t *testing.T, err error, tok, current token.Token) {
	t.Helper()
	var stale *pgerr.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, pgerr.ErrStale) || stale.Token != tok || stale.Current != current {
		t.Errorf("got error %v, want token %d refused as stale at %d", err, tok, current)
	}
}
