package fence_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgledger"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// encoded returns a database in another encoding, a pool that speaks UTF-8, and one that declares another encoding.
func encoded(t *testing.T, database, client string) (honest, other *pgxpool.Pool) {
	t.Helper()
	url := testenv.EncodedDatabase(t, database)
	honest, other = testenv.PoolOn(t, url), testenv.PoolOn(t, testenv.WithEncoding(url, client))
	fencetest.Exec(t, honest, fencetest.CreateRows)
	return honest, other
}

// A function that creates a name, or finds no fence of a name, checks the session's encoding: with psql no Go code can
// do that.
func TestCase31_SQLCallersAreRefusedForTheirEncoding(t *testing.T) {
	t.Parallel()
	const nonce = `'00000000-0000-0000-0000-000000000001'`
	for _, encodings := range [][2]string{{"LATIN1", "LATIN1"}, {"SQL_ASCII", "SQL_ASCII"}, {"UTF8", "LATIN1"}} {
		honest, other := encoded(t, encodings[0], encodings[1])
		fencetest.Exec(t, honest, `SELECT fencepost.claim('orders/ü', 1, `+nonce+`)`)
		for _, call := range []string{
			`claim('orders/ü', 2, ` + nonce + `)`,
			`claim_all('{orders/ü}', '{2}', ARRAY[` + nonce + `]::uuid[])`,
			`guard('orders/ü', 1, ` + nonce + `)`,
			`enter('orders/ü', 1, ` + nonce + `)`,
			`enter_all('{orders/ü}', '{1}', ARRAY[` + nonce + `]::uuid[])`,
			`once_look('n', 'ü', 'orders/ü', sha256('x'))`,
			`once_begin('n', 'ü', 'orders/ü', sha256('x'))`,
			`once_end('n', 'ü', '1')`,
			`once_purge('n', '48 hours', 1)`,
			`protect('app.item', 'n', 'ü', '{id}')`,
		} {
			_, err := other.Exec(t.Context(), `SELECT fencepost.`+call)
			if encodings[0] == "SQL_ASCII" && (strings.HasPrefix(call, "guard") || strings.HasPrefix(call, "enter")) {
				// The bytes are taken unchanged, so this is the same fence and the same claim.
				if err != nil {
					t.Errorf("%v: %s: %v", encodings, call, err)
				}
				continue
			}
			if sqlState(err) != "ZF002" || !strings.Contains(err.Error(), "client_encoding is "+encodings[1]) {
				t.Errorf("%v: %s: %v", encodings, call, err)
			}
		}
		var fences, keys int
		err := honest.QueryRow(t.Context(),
			`SELECT (SELECT count(*) FROM fencepost.fence), (SELECT count(*) FROM fencepost.ledger)`).
			Scan(&fences, &keys)
		if err != nil || fences != 1 || keys != 0 {
			t.Errorf("%v: %d fences, %d keys, %v", encodings, fences, keys, err)
		}
	}
}

// The control: a claim without the check makes a second fence of the resource, and two holders write.
func TestCase31Control_WithoutTheQuestionThereAreTwoFences(t *testing.T) {
	t.Parallel()
	honest, other := encoded(t, "LATIN1", "LATIN1")
	replaceFunction(t, honest, "claim(text, bigint, uuid, text)", `pg_client_encoding() <> 'UTF8'`, `false`)
	a := fencetest.ClaimOf("orders/ü", 1)
	fencetest.Exec(t, other, `SELECT fencepost.claim($1::text, 1, $2::uuid)`, a.Resource, uuidOf(a.Nonce))
	fencetest.MustRaise(t, honest, fencetest.ClaimOf("orders/ü", 2))
	err := pgx.BeginFunc(t.Context(), other, func(tx pgx.Tx) error {
		if _, err := tx.Exec(
			t.Context(),
			`SELECT fencepost.enter($1::text, 1, $2::uuid)`,
			a.Resource,
			uuidOf(a.Nonce),
		); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `UPDATE app.item SET value = 'overtaken' WHERE id = 1`)
		return err
	})
	if err != nil || fencetest.Read(t, honest, 1).Value != "overtaken" {
		t.Errorf("the control wrote nothing: %v", err)
	}
}

// database/sql does not show the encoding. The functions check it, and a bare write checks it in its own statement.
func TestCase31_OverDatabaseSQLTheServerAsks(t *testing.T) {
	t.Parallel()
	honest, other := encoded(t, "LATIN1", "LATIN1")
	fencetest.Exec(
		t,
		honest,
		`CREATE TABLE app.named (id text PRIMARY KEY, value text, last_fencing_token bigint NOT NULL DEFAULT 0)`,
	)
	fencetest.Exec(t, honest, `INSERT INTO app.named (id) VALUES ('ü'), ('Ã¼')`)
	c := fencetest.MustRaise(t, honest, fencetest.ClaimOf("orders/ü", 1))
	db := openSQL(t, other.Config().ConnString())
	fencetest.WantErr(t, fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("orders/ü", 2), nil), fence.ErrInvalid)
	fencetest.WantErr(t, guardedSQL(t.Context(), db, c, 1, "x"), fence.ErrInvalid)
	named := fence.Table{Schema: "app", Name: "named", Key: []string{"id"}}
	update := func(url string) error {
		return fence.UpdateSQL(t.Context(), openSQL(t, url), named, 1, fence.Key{"ü"}, fence.Set{"value": "x"})
	}
	fencetest.WantErr(t, update(other.Config().ConnString()), fence.ErrInvalid)
	if err := update(honest.Config().ConnString()); err != nil {
		t.Error(err)
	}
	var written string
	err := honest.QueryRow(t.Context(), `SELECT string_agg(id, ',') FROM app.named WHERE value = 'x'`).Scan(&written)
	if err != nil || written != "ü" {
		t.Errorf("written: %q, %v", written, err)
	}
}

// Every function of this package that sends a name first checks the connection.
func TestCase31_NothingIsSentOnAConnectionOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	batches := fencetest.BatchWriterOf(t, pool, fencetest.Rows)
	fencetest.Exec(t, conn, `SET client_encoding = 'LATIN1'`)
	inTx := func(fn func(tx pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), conn, fn) }
	key, set, e := fence.Key{1}, fence.Set{"value": "x"}, pgledger.Entry{Namespace: "n", Key: "k", Resource: "r"}
	read := func(pgx.Rows) error { return nil }
	ctx := t.Context()
	for name, err := range map[string]error{
		"raise":   fence.Raise(ctx, conn.Conn(), fencetest.ClaimOf("r", 2), nil),
		"draw":    fencetest.Second(fence.Draw(ctx, conn.Conn(), "r", c.Nonce, nil)),
		"guard":   inTx(func(tx pgx.Tx) error { return fence.Enter(ctx, tx, c) }),
		"update":  fencetest.UpdateOn(ctx, conn.Conn(), c, fencetest.Rows, key, set),
		"insert":  pgrow.InsertClaimed(ctx, conn.Conn(), c, fencetest.Rows, fence.Key{9}, set),
		"claim":   pgrow.StampRow(ctx, conn.Conn(), c, fencetest.Rows, key, []string{"value"}, read),
		"bare":    fence.Update(ctx, conn.Conn(), rows, 1, key, set),
		"in conn": fence.Update(ctx, conn, rows, 1, key, set),
		"in tx":   inTx(func(tx pgx.Tx) error { return fence.Update(ctx, tx, rows, 1, key, set) }),
		"modify": inTx(func(tx pgx.Tx) error {
			return pgrow.ModifyRow(ctx, tx, c, fencetest.Rows, key, []string{"value"}, read,
				func() (fence.Set, error) { return set, nil })
		}),
		"load": inTx(func(tx pgx.Tx) error {
			return fencetest.Second(batches.Stage(ctx, tx, []string{"id", "value"}, pgx.CopyFromRows([][]any{{1, "x"}})))
		}),
		"look":       func() error { _, _, err := pgledger.Look(ctx, conn, e); return err }(),
		"purge":      fencetest.Second(pgledger.Purge(ctx, conn.Conn(), "n", pgledger.Window)),
		"protection": fencetest.Second(pgtable.ProtectionOf(ctx, conn.Conn(), fencetest.Rows)),
		"inspect":    fencetest.Second(pgtable.Inspect(ctx, conn, fencetest.Rows)),
		"maxima":     fencetest.Second(pgtable.Maxima(ctx, conn, fencetest.Rows, "x", nil)),
	} {
		if fencetest.WantErr(t, err, fence.ErrInvalid); err != nil && !strings.Contains(err.Error(), "LATIN1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	fencetest.Exec(t, conn, `SET client_encoding = 'UNICODE'`) // which PostgreSQL leaves in this spelling
	if err := inTx(func(tx pgx.Tx) error { return fence.Enter(ctx, tx, c) }); err != nil {
		t.Error(err)
	}
}

// second returns the error of a call that also returns something else.
