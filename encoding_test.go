package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// A pool that pgx makes for a LATIN1 database sends UTF-8, which the server takes for LATIN1: that would make a second
// fence of the resource.
func TestCase31_APoolOfAnotherEncodingMakesNoFence(t *testing.T) {
	t.Parallel()
	const resource = "orders/ü"
	for _, encodings := range [][2]string{{"LATIN1", "LATIN1"}, {"SQL_ASCII", "SQL_ASCII"}, {"UTF8", "WIN1252"}} {
		url := testenv.EncodedDatabase(t, encodings[0])
		b := setupOn(t, testenv.PoolOn(t, url), testenv.Redis(t), fencepost.Options{})
		other := *b
		other.pool = testenv.PoolOn(t, testenv.WithEncoding(url, encodings[1]))
		store := other.another(t)
		_, err := store.Acquire(t.Context(), resource, nil)
		wantOnlyInvalid(t, "Acquire in "+encodings[1], err)
		if !b.free(t, resource) {
			t.Error("a lease was left behind")
		}
		l := b.acquire(t, resource, nil)
		if err := b.store.Tx(t.Context(), func(context.Context, pgx.Tx) error { return nil }, l); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for name, locks := range map[string]worker{
			"session": advisoryStore(t, other.pool, &b.opts), "transaction": advisoryTx(t, other.pool, &b.opts),
		} {
			err := locks.Do(t.Context(), resource, func(context.Context, pgx.Tx) error { return nil })
			wantOnlyInvalid(t, name+" locks in "+encodings[1], err)
		}
		var fences int
		if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM fencepost.fence`).
			Scan(&fences); err != nil ||
			fences != 1 {
			t.Errorf("%d fences of one resource in %s, %v", fences, encodings[0], err)
		}
	}
}

func wantOnlyInvalid(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, fencepost.ErrInvalid) || errors.Is(err, fencepost.ErrUnavailable) ||
		errors.Is(err, fencepost.ErrNotFound) {
		t.Errorf("%s: got %v, want ErrInvalid", what, err)
	}
}

// The setting may change while a connection lives, so every call checks it. Once the setting is right again, the
// connection can be used again.
func TestCase31_EveryCallLooksAtTheEncoding(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testenv.EncodedDatabase(t, "LATIN1"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := setupOn(t, pool, testenv.Redis(t), fencepost.Options{})
	const row = "ü" // sent as it is, a LATIN1 session would find another row
	exec(t, pool, `INSERT INTO app.invoice (id, value) VALUES ($1, 'mine'), ($2, 'another')`, row, "Ã¼")
	l := b.acquire(t, "invoice-"+row, nil)
	calls := every(t, b.table, l, fencepost.Key{row})
	calls["tx"] = func() error {
		return b.store.Tx(t.Context(), func(context.Context, pgx.Tx) error { return nil }, l)
	}
	calls["once"] = func() error {
		_, err := fencepost.Once(
			t.Context(),
			l,
			"key",
			"request",
			func(context.Context, pgx.Tx) (int, error) { return 1, nil },
		)
		return err
	}
	calls["load"] = func() error {
		_, err := b.table.Load(t.Context(), l, []string{"id", "value"}, pgx.CopyFromRows([][]any{{row, "x"}}), nil)
		return err
	}
	calls["table"] = func() error {
		_, err := fencepost.NewTable[Invoice](t.Context(), b.store, invoiceSpec())
		return err
	}
	calls["adopt"] = func() error { return second(b.table.Adopt(t.Context())) }
	calls["purge"] = func() error { return second(b.store.PurgeOnce(t.Context(), 48*time.Hour)) }
	calls["acquire"] = func() error { return second(b.store.TryAcquire(t.Context(), "another", nil)) }
	exec(t, pool, `SET client_encoding = 'LATIN1'`)
	for name, call := range calls {
		wantOnlyInvalid(t, name, call())
	}
	exec(t, pool, `RESET client_encoding`)
	if got, err := b.table.Get(t.Context(), l, fencepost.Key{row}); err != nil || got.Value != "mine" {
		t.Errorf("read %+v, %v", got, err)
	}
	if err := calls["tx"](); err != nil {
		t.Error(err)
	}
}

// A function may change the setting of its transaction's session, so the methods of TableTx check it too. The control
// is the plain read, which finds another row.
func TestCase31_RowsInATransactionLookAtTheEncoding(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testenv.PoolOn(t, testenv.EncodedDatabase(t, "LATIN1")), testenv.Redis(t), fencepost.Options{})
	const row = "ü"
	exec(t, b.pool, `INSERT INTO app.invoice (id, value) VALUES ($1, 'mine'), ($2, 'another')`, row, "Ã¼")
	key, set := fencepost.Key{row}, fencepost.Set{"value": "x"}
	err := b.store.Do(t.Context(), "invoice-"+row, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL client_encoding = 'LATIN1'`); err != nil {
			return err
		}
		invoices := b.table.In(tx)
		for name, call := range map[string]func() error{
			"get":    func() error { return second(invoices.Get(ctx, key)) },
			"stamp":  func() error { return second(invoices.Stamp(ctx, key)) },
			"update": func() error { return invoices.Update(ctx, key, set) },
			"insert": func() error { return invoices.Insert(ctx, key, set) },
			"upsert": func() error { return second(invoices.Upsert(ctx, key, set)) },
			"delete": func() error { return invoices.Delete(ctx, key) },
			"modify": func() error {
				return invoices.Modify(ctx, key, func(r *Invoice) error { r.Value = "x"; return nil })
			},
			"batch": func() error {
				return invoices.UpdateBatch(ctx, []fencepost.Change{{Key: key, Set: set}}, nil)
			},
		} {
			wantOnlyInvalid(t, name, call())
		}
		var found string
		err := tx.QueryRow(ctx, `SELECT value FROM app.invoice WHERE id = $1`, row).Scan(&found)
		if found != "another" {
			t.Errorf("the control read %q: the test shows nothing", found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A name that the database's encoding cannot represent is the caller's mistake, not a fault of the server.
func TestCase31_ANameThatTheDatabaseCannotHoldIsInvalid(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testenv.PoolOn(t, testenv.EncodedDatabase(t, "LATIN1")), testenv.Redis(t), fencepost.Options{})
	_, err := b.store.Acquire(t.Context(), "orders/漢", nil)
	wantOnlyInvalid(t, "Acquire", err)
	if !b.free(t, "orders/漢") {
		t.Error("a lease was left behind")
	}
	l := b.acquire(t, "invoice-漢字"[:len("invoice-")]+"é", nil)
	wantOnlyInvalid(t, "Update", b.table.Update(t.Context(), l, fencepost.Key{"é"}, fencepost.Set{"value": "漢"}))
}
