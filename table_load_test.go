package fencepost_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
)

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// C29 under a lease: rows with higher tokens are reported and stay as they are. Nothing else is written unless the load
// may be partial.
func TestCase29ALoadTellsNewerRows(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 100)
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 50 WHERE id::int % 10 = 0`)
	ids := make([]int, 200)
	for i := range ids {
		ids[i] = 200 - i
	}
	for _, step := range []struct {
		opts    *fencepost.BatchOptions
		written int64
	}{{nil, 0}, {inPart, 190}} {
		n, err := table.Load(t.Context(), l, loadColumns, sourceOf("new", ids...), step.opts)
		var many *fencepost.BatchError
		if !errors.As(err, &many) || n != step.written || many.Stale != 10 || many.Failed() != 10 || many.Rows != 200 {
			t.Fatalf("%d rows, %v", n, err)
		}
		wantErr(t, err, fencepost.ErrStale)
		if got := countInvoices(
			t,
			b,
			`value = 'new' AND last_fencing_token = $1`,
			int64(l.Token()),
		); int64(
			got,
		) != step.written {
			t.Errorf("%d rows were written, not %d", got, step.written)
		}
		if got := countInvoices(t, b, `value = 'old' AND last_fencing_token = 50`); got != 10 {
			t.Errorf("%d newer rows stand", got)
		}
	}
	if n, err := table.Load(
		t.Context(),
		l,
		[]string{"value", "id"},
		pgx.CopyFromRows([][]any{{"turned", "1"}}),
		nil,
	); n != 1 ||
		err != nil {
		t.Errorf("columns in another order: %d, %v", n, err)
	}
	if got := countInvoices(t, b, `id = '1' AND value = 'turned'`); got != 1 {
		t.Error("the columns were mixed up")
	}
	if got := countInvoices(t, b, `EXISTS (SELECT FROM pg_class WHERE relname LIKE 'fencepost_load%')`); got != 0 {
		t.Error("a staging table is left")
	}
}

// A row of another resource ends the load, and nothing is written.
func TestALoadRefusesRowsOfAnotherResource(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	n, err := b.table.Load(t.Context(), l, loadColumns, sourceOf("new", 1, 2), nil)
	if wantErr(t, err, fencepost.ErrInvalid); n != 0 || !containsAll(err.Error(), "[2]", `"invoice-2"`) {
		t.Errorf("%d rows, and the row of another resource is not named: %v", n, err)
	}
	if r := b.read(t, "1"); r.Value != "0" {
		t.Errorf("the row is %+v", r)
	}
	if n, err := b.table.Load(t.Context(), l, loadColumns, sourceOf("new", 1), nil); n != 1 || err != nil {
		t.Errorf("its own row: %d, %v", n, err)
	}
}

// If the reply to COMMIT is lost, PostgreSQL is asked, for loads and batches alike.
func TestALostReplyToTheCommitOfABatchIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	store, proxy := behindProxy(t, b)
	exec(t, b.pool, `TRUNCATE app.invoice`)
	table, err := fencepost.NewTable[Invoice](t.Context(), store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"}, Resource: fencepost.Constant("invoices"),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, store, "invoices", nil)
	for name, write := range map[string]func() error{
		"load":  func() error { return second(table.Load(t.Context(), l, loadColumns, sourceOf("load", 1, 2), nil)) },
		"batch": func() error { return second(table.UpsertBatch(t.Context(), l, changesOf("batch", 1, 2), nil)) },
	} {
		if err := write(); err != nil { // prepares its statements
			t.Fatal(err)
		}
		exec(t, b.pool, `TRUNCATE app.invoice`)
		dropped := proxy.DropNextReply(faults.Commit())
		if err := write(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		<-dropped
		if n := countInvoices(t, b, `value = $1`, name); n != 2 {
			t.Errorf("%s: %d rows were written", name, n)
		}
	}
}
