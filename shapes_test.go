package fencepost_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
)

// Statements name their columns, so columns may be added, and unused ones dropped, while connections that have used the
// table stay open. The control: a prepared SELECT * of the same connections fails.
func TestATableMayChangeUnderOpenConnections(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `ALTER TABLE app.invoice ADD COLUMN unread text`)
	l := b.acquire(t, "invoice-1", nil)
	key := fencepost.Key{"1"}
	use := func() error {
		_, read := b.table.Get(t.Context(), l, key)
		_, claimed := b.table.Stamp(t.Context(), l, key)
		return errors.Join(read, claimed,
			b.table.Update(t.Context(), l, key, fencepost.Set{"value": "x"}),
			second(b.table.Upsert(t.Context(), l, key, fencepost.Set{"value": "y"})),
			b.table.Modify(t.Context(), l, key, func(row *Invoice) error { row.Value += "z"; return nil }))
	}
	all := func() error {
		rows, err := b.pool.Query(t.Context(), `SELECT * FROM app.invoice`)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
	for range 4 { // plans are cached by then
		if err := errors.Join(use(), all()); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, b.pool, `ALTER TABLE app.invoice ADD COLUMN more text NOT NULL DEFAULT ''`)
	exec(t, b.pool, `ALTER TABLE app.invoice DROP COLUMN unread`)
	if err := use(); err != nil {
		t.Error(err)
	}
	if all() == nil {
		t.Error("the control did not notice the change")
	}
	if got := b.read(t, "1").Value; got != "yz" {
		t.Errorf("value %q", got)
	}
}

// A published table takes every write while its key is its replica identity. Without one PostgreSQL refuses updates and
// deletes, and its word is passed on: nothing is stale, and nothing is written.
func TestAPublishedTable(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `CREATE PUBLICATION all_invoices FOR TABLE app.invoice`)
	l := b.acquire(t, "invoice-1", nil)
	nine := b.acquire(t, "invoice-9", nil)
	key, set := fencepost.Key{"1"}, fencepost.Set{"value": "x"}
	if err := errors.Join(
		b.table.Update(t.Context(), l, key, set),
		second(b.table.Upsert(t.Context(), l, key, set)),
		b.table.Insert(t.Context(), nine, fencepost.Key{"9"}, set),
		b.table.Delete(t.Context(), nine, fencepost.Key{"9"}),
	); err != nil {
		t.Fatal(err)
	}
	before := b.read(t, "1")
	exec(t, b.pool, `ALTER TABLE app.invoice REPLICA IDENTITY NOTHING`)
	for name, err := range map[string]error{
		"update": b.table.Update(t.Context(), l, key, fencepost.Set{"value": "y"}),
		"delete": b.table.Delete(t.Context(), l, key),
	} {
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "55000" || errors.Is(err, fencepost.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := b.read(t, "1"); after != before {
		t.Errorf("the row went from %+v to %+v", before, after)
	}
}
