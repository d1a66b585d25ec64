package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
)

// manyInvoices is the table of invoices with rows 1 to n, all of one resource, and its lease.
func manyInvoices(t *testing.T, b *bundle, n int) (*fencepost.Table[Invoice], *fencepost.Lease) {
	t.Helper()
	exec(t, b.pool, `TRUNCATE app.invoice`)
	exec(t, b.pool, `INSERT INTO app.invoice (id, value) SELECT i::text, 'old' FROM generate_series(1, $1::int) AS i`, n)
	table, err := fencepost.NewTable[Invoice](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"}, Resource: fencepost.Constant("invoices"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return table, b.acquire(t, "invoices", nil)
}

// changesOf sets a value in the rows with the given ids.
func changesOf(value string, ids ...int) []fencepost.Change {
	rows := make([]fencepost.Change, len(ids))
	for i, id := range ids {
		rows[i] = fencepost.Change{Key: fencepost.Key{strconv.Itoa(id)}, Set: fencepost.Set{"value": value}}
	}
	return rows
}

func sourceOf(value string, ids ...int) pgx.CopyFromSource {
	return pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{strconv.Itoa(ids[i]), value}, nil })
}

var (
	inPart      = &fencepost.BatchOptions{Partial: true}
	loadColumns = []string{"id", "value"}
)

func countInvoices(t *testing.T, b *bundle, condition string, args ...any) (n int) {
	t.Helper()
	if err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM app.invoice WHERE `+condition, args...).
		Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// C21 a, under one lease that goroutines share: single rows, batches of either kind, loads and transactions meet on the
// same rows, and none of it fails.
func TestCase21GoroutinesThatShareALeaseWriteBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 60)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 25 {
				ids := rand.Perm(60)[:50]
				for j := range ids {
					ids[j]++
				}
				var err error
				switch i % 5 {
				case 0, 1:
					err = table.UpdateBatch(t.Context(), l, changesOf("new", ids...), nil)
				case 2:
					err = second(table.UpsertBatch(t.Context(), l, changesOf("new", ids...), nil))
				case 3:
					_, err = table.Load(t.Context(), l, loadColumns, sourceOf("new", ids...), nil)
				default:
					err = table.Update(t.Context(), l, fencepost.Key{strconv.Itoa(ids[0])}, fencepost.Set{"value": "new"})
				}
				if err != nil {
					t.Errorf("worker %d, batch %d: %v", worker, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := countInvoices(t, b, `value = 'new' AND last_fencing_token = $1`, int64(l.Token())); n != 60 {
		t.Errorf("%d rows were written", n)
	}
}

// C21 c: where a row is missing, rows ahead of their fence are told with it; where they are all that stands in
// the way, they heal; and in part nothing heals.
func TestCase21ABatchHealsOrTellsAll(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{Events: c.events()})
	table, l := manyInvoices(t, b, 9)
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 100 + id::int WHERE id IN ('2', '4', '6')`)
	ten := changesOf("new", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	failures := func(err error, written int) {
		t.Helper()
		var many *fencepost.BatchError
		if !errors.As(err, &many) || many.Written != written || many.Stale != 3 || many.Missing != 1 {
			t.Fatalf("got %v", err)
		}
		told := ""
		for _, f := range many.Failures {
			var stale *fencepost.StaleError
			if errors.As(f.Err, &stale) {
				told += fmt.Sprintf("%v at %d, ", f.Key, stale.Current)
			} else if errors.Is(f.Err, fencepost.ErrNotFound) {
				told += fmt.Sprintf("%v missing", f.Key)
			}
		}
		if want := "[2] at 102, [4] at 104, [6] at 106, [10] missing"; told != want {
			t.Errorf("told %s, want %s", told, want)
		}
	}
	failures(table.UpdateBatch(t.Context(), l, ten, nil), 0)
	if n := countInvoices(t, b, `value <> 'old'`); n != 0 || l.Token() != 1 {
		t.Errorf("%d rows were written, token %d", n, l.Token())
	}
	failures(table.UpdateBatch(t.Context(), l, ten, inPart), 6)
	if n := countInvoices(t, b, `value = 'new' AND last_fencing_token = 1`); n != 6 || l.Token() != 1 {
		t.Errorf("%d rows were written, token %d", n, l.Token())
	}
	if err := table.UpdateBatch(t.Context(), l, ten[:9], nil); err != nil {
		t.Fatal(err)
	}
	if n := countInvoices(t, b, `value = 'new' AND last_fencing_token = 106`); n != 9 || l.Token() != 106 {
		t.Errorf("%d rows were healed, token %d", n, l.Token())
	}
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 9223372036854775807 WHERE id = '3'`)
	err := second(table.UpsertBatch(t.Context(), l, ten, nil))
	if wantErr(t, err, fencepost.ErrTokenRegressed); errors.Is(err, fencepost.ErrStale) {
		t.Errorf("a current holder was called stale: %v", err)
	}
}

// Goroutines that meet different rows ahead of their fence all heal.
func TestBatchesHealAmongGoroutines(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 8)
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 100 * id::int`)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := table.UpdateBatch(t.Context(), l, changesOf("new", i+1), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := countInvoices(t, b, `value = 'new'`); n != 8 || l.Token() != 800 {
		t.Errorf("%d rows were written, token %d", n, l.Token())
	}
}

// Healing serves a current holder: one that has been overtaken writes no batch, before the rival has written a row.
func TestAnOvertakenLeaseWritesNoBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 3)
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoices")).Err(); err != nil {
		t.Fatal(err)
	}
	rival := acquire(t, b.another(t), "invoices", nil)
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = $1 WHERE id = '2'`, int64(rival.Token())+5)
	for _, opts := range []*fencepost.BatchOptions{nil, inPart} {
		wantStale(t, table.UpdateBatch(t.Context(), l, changesOf("new", 1, 2, 3), opts), l.Token(), rival.Token())
		wantStale(t, second(table.UpsertBatch(t.Context(), l, changesOf("new", 1, 2, 9), opts)), l.Token(), rival.Token())
		_, err := table.Load(t.Context(), l, loadColumns, sourceOf("new", 1, 2, 9), opts)
		wantStale(t, err, l.Token(), rival.Token())
	}
	if n := countInvoices(t, b, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// What cannot be is refused without a connection; a lease that is over as well; an empty batch only looks at the lease.
func TestBadBatchesUseNoConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 3)
	mine := b.acquire(t, "invoice-1", nil)
	foreign := acquire(t, b.another(t), "invoice-2", nil)
	before := b.pool.Stat().AcquireCount()
	both := append(changesOf("x", 1), changesOf("x", 2)...)
	err := b.table.UpdateBatch(t.Context(), mine, both, nil)
	if wantErr(t, err, fencepost.ErrInvalid); err == nil || !containsAll(err.Error(), `[2]`, `"invoice-2"`) {
		t.Errorf("the row of another resource is not named: %v", err)
	}
	for name, err := range map[string]error{
		"another resource": second(b.table.UpsertBatch(t.Context(), mine, both, nil)),
		"another store":    table.UpdateBatch(t.Context(), foreign, changesOf("x", 1), nil),
		"no lease":         table.UpdateBatch(t.Context(), nil, changesOf("x", 1), nil),
		"no lease, empty":  table.UpdateBatch(t.Context(), nil, nil, nil),
		"a key twice":      table.UpdateBatch(t.Context(), l, changesOf("x", 1, 2, 1), nil),
		"no columns":       table.UpdateBatch(t.Context(), l, []fencepost.Change{{Key: fencepost.Key{"1"}}}, nil),
		"token column": table.UpdateBatch(t.Context(), l,
			[]fencepost.Change{{Key: fencepost.Key{"1"}, Set: fencepost.Set{"last_fencing_token": 9}}}, nil),
		"load, no lease":  second(table.Load(t.Context(), nil, loadColumns, sourceOf("x", 1), nil)),
		"load, no key":    second(table.Load(t.Context(), l, []string{"value"}, sourceOf("x", 1), nil)),
		"load, no source": second(table.Load(t.Context(), l, loadColumns, nil, nil)),
	} {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := table.UpdateBatch(t.Context(), l, nil, nil); err != nil {
		t.Errorf("empty: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"empty": table.UpdateBatch(t.Context(), l, nil, nil),
		"rows":  second(table.UpsertBatch(t.Context(), l, changesOf("x", 1), nil)),
		"load":  second(table.Load(t.Context(), l, loadColumns, sourceOf("x", 1), nil)),
	} {
		if !errors.Is(err, fencepost.ErrLost) {
			t.Errorf("a lease that is over, %s: %v", name, err)
		}
	}
	if n := b.pool.Stat().AcquireCount() - before; n != 0 {
		t.Errorf("%d connections were used", n)
	}
}

// Where the table is protected by the database's own protection, batches and loads pass it, in both of their ways.
func TestManyRowsPassProtection(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 3)
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoices')`, b.opts.Namespace)
	for i, opts := range []*fencepost.BatchOptions{nil, inPart} {
		if err := table.UpdateBatch(t.Context(), l, changesOf("new", 1, 2, 3), opts); err != nil {
			t.Error(err)
		}
		if n, err := table.UpsertBatch(t.Context(), l, changesOf("new", 3, 4), opts); n != 1-i || err != nil {
			t.Errorf("%d inserted, %v", n, err)
		}
		if n, err := table.Load(t.Context(), l, loadColumns, sourceOf("new", 4, 5), opts); n != 2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if n := countInvoices(t, b, `value = 'new' AND last_fencing_token = $1`, int64(l.Token())); n != 5 {
		t.Errorf("%d rows were written", n)
	}
}

// The error of PostgreSQL's that stops a batch says which table and which row it is about, wherever the row stands; of
// two rows that only together are refused it names the second. Nothing is written.
func TestASQLErrorOfABatchNamesItsRow(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	const n = 9
	table, l := manyInvoices(t, b, n)
	exec(t, b.pool, `ALTER TABLE app.invoice ADD CONSTRAINT no_bad CHECK (value <> 'bad')`)
	exec(t, b.pool, `CREATE UNIQUE INDEX once ON app.invoice (value) WHERE value LIKE 'only %'`)
	for index, rows := range map[int][]fencepost.Change{
		1: changesOf("new", 1, 2, 3, 4, 5), 5: changesOf("new", 1, 2, 3, 4, 5, 6), 0: changesOf("new", 7),
		n - 1: changesOf("new", 1, 2, 3, 4, 5, 6, 7, 8, 9),
	} {
		rows[index].Set = fencepost.Set{"value": "bad"}
		wantRow(t, table.UpdateBatch(t.Context(), l, rows, nil), "23514", index, rows[index].Key)
		wantRow(t, second(table.UpsertBatch(t.Context(), l, rows, nil)), "23514", index, rows[index].Key)
	}
	twice := changesOf("new", 1, 2, 3, 4, 5)
	twice[0].Set, twice[4].Set = fencepost.Set{"value": "only one"}, fencepost.Set{"value": "only one"}
	wantRow(t, table.UpdateBatch(t.Context(), l, twice, nil), "23505", 4, twice[4].Key)
	if left := rowsWith(t, b, "old"); left != n {
		t.Errorf("%d rows of %d are as they were", left, n)
	}
}

// wantRow wants an error of PostgreSQL's that names the table, and a row by its place and key.
func wantRow(t *testing.T, err error, code string, index int, key fencepost.Key) {
	t.Helper()
	var server *pgconn.PgError
	var row *fencepost.RowError
	if !errors.As(err, &server) || server.Code != code || !errors.As(err, &row) || row.Index != index ||
		!slices.Equal(row.Key, key) || !strings.HasPrefix(err.Error(), `fencepost: table "app"."invoice", index `) {
		t.Errorf("row %d: got %v", index, err)
	}
}

// rowsWith counts the rows that have a value.
func rowsWith(t *testing.T, b *bundle, value string) (n int) {
	t.Helper()
	err := b.pool.QueryRow(t.Context(), `SELECT count(*) FROM app.invoice WHERE value = $1`, value).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Looking for the row leaves the transaction aborted, as the error did: nothing of it commits if that is overlooked.
func TestASQLErrorOfABatchThatIsOverlookedCommitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	table, l := manyInvoices(t, b, 5)
	exec(t, b.pool, `ALTER TABLE app.invoice ADD CONSTRAINT no_bad CHECK (value <> 'bad')`)
	rows := changesOf("new", 1, 2, 3, 4)
	rows[2].Set = fencepost.Set{"value": "bad"}
	err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		if err := table.In(tx).Update(ctx, fencepost.Key{"5"}, fencepost.Set{"value": "new"}); err != nil {
			t.Error(err)
		}
		wantRow(t, table.In(tx).UpdateBatch(ctx, rows, nil), "23514", 2, rows[2].Key)
		return nil
	}, l)
	wantErr(t, err, pgx.ErrTxCommitRollback)
	if left := rowsWith(t, b, "old"); left != 5 {
		t.Errorf("%d rows of 5 are as they were", left)
	}
}
