package fence_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/token"
)

// bareUpsert is a way to upsert with a bare token, and where its result can be read.
type bareUpsert struct {
	upsert func(tok token.Token, id int, value string) (inserted bool, err error)
	db     fence.DB
}

// bareUpserts are the ways to upsert with a bare token.
func bareUpserts(t *testing.T) map[string]bareUpsert {
	t.Helper()
	db, sqlPool := setupSQL(t)
	pool := fencetest.Setup(t)
	return map[string]bareUpsert{
		"pgx": {func(tok token.Token, id int, value string) (bool, error) {
			return fence.Upsert(t.Context(), pool, rows, tok, fence.Key{id}, fence.Set{"value": value})
		}, pool},
		"database/sql": {func(tok token.Token, id int, value string) (bool, error) {
			return fence.UpsertSQL(t.Context(), db, rows, tok, fence.Key{id}, fence.Set{"value": value})
		}, sqlPool},
	}
}

// I9: each outcome of a bare upsert is a separate error, and a refused one changes nothing. The comparison with the
// stored token is strict: a token that meets itself is spent.
func TestCase18_TheOutcomesOfABareUpsert(t *testing.T) {
	t.Parallel()
	for name, way := range bareUpserts(t) {
		for _, tt := range []struct {
			tok      token.Token
			id       int
			inserted bool
			want     error
		}{
			{5, 9, true, nil},
			{7, 9, false, nil},
			{7, 9, false, fence.ErrTokenSpent},
			{6, 9, false, fence.ErrStale},
			{5, 1, false, nil},
			{5, 1, false, fence.ErrTokenSpent},
			{0, 1, false, fence.ErrInvalid},
		} {
			before := fencetest.Row{}
			if tt.want != nil {
				before = fencetest.Read(t, way.db, tt.id)
			}
			inserted, err := way.upsert(tt.tok, tt.id, "new")
			if tt.want != nil {
				fencetest.WantOnly(t, name, err, tt.want)
				if after := fencetest.Read(t, way.db, tt.id); after != before {
					t.Errorf("%s: a refused upsert changed the row from %+v to %+v", name, before, after)
				}
			} else if r := fencetest.Read(t, way.db, tt.id); err != nil || r.Token != tt.tok || r.Value != "new" {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			if inserted != tt.inserted {
				t.Errorf("%s: token %d on row %d: inserted %v", name, tt.tok, tt.id, inserted)
			}
		}
	}
}

// C08: a bare upsert brings a deleted row back under a stale token. The same write in a transaction that has entered
// the resource is refused, because the fence outlives the row.
func TestCase08Control_ABareUpsertRaisesTheDead(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	upsert := func(db fence.DB, tok token.Token) error {
		_, err := fence.Upsert(t.Context(), db, rows, tok, fence.Key{9}, fence.Set{"value": "old"})
		return err
	}
	if err := upsert(pool, old.Token); err != nil {
		t.Fatal(err)
	}
	newer := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 6))
	remove := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `DELETE FROM app.item WHERE id = 9`)
		return err
	}
	if err := under(t.Context(), pool, remove, newer); err != nil {
		t.Fatal(err)
	}
	entered := func(tx pgx.Tx) error { return upsert(tx, old.Token) }
	fencetest.WantStale(t, under(t.Context(), pool, entered, old), 5, 6)
	if err := upsert(pool, 4); err != nil { // the control
		t.Errorf("a bare token of a deleted row: %v", err)
	}
	if r := fencetest.Read(t, pool, 9); r.Value != "old" || r.Token != 4 {
		t.Errorf("the row is %+v", r)
	}
}

// C31: over database/sql the server is asked for its encoding in the upsert's own statement, and then nothing is
// written.
func TestCase31_AnUpsertOverDatabaseSQLAsksForTheEncoding(t *testing.T) {
	t.Parallel()
	db, pool := setupSQL(t)
	err := onSQLConn(t.Context(), db, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(t.Context(), `SET client_encoding = 'LATIN1'`); err != nil {
			return err
		}
		_, err := fence.UpsertSQL(t.Context(), conn, rows, 5, fence.Key{9}, fence.Set{"value": "x"})
		return err
	})
	fencetest.WantErr(t, err, fence.ErrInvalid)
	if n := fencetest.Count(t, pool, `id = 9`); n != 0 {
		t.Error("a row was inserted")
	}
}

// onSQLConn runs a call on a connection that is closed afterwards.
func onSQLConn(ctx context.Context, db *sql.DB, fn func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return fn(conn)
}
