package fencepost_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

func upTo(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i + 1
	}
	return ids
}

func batchesOf(n int) *fencepost.ImportOptions { return &fencepost.ImportOptions{BatchRows: n} }

// wantImported requires that the first n rows have the value, each stamped with the token of its own fence, and that no
// lease is left.
func wantImported(t *testing.T, b *bundle, value string, n int) {
	t.Helper()
	got := countInvoices(t, b, `value = $1 AND last_fencing_token = (SELECT f.token FROM fencepost.fence AS f
		WHERE f.resource = $2 || ':invoice-' || id) AND id::int <= $3`, value, b.opts.Namespace, n)
	if all := countInvoices(t, b, `value = $1`, value); got != n || all != n {
		t.Errorf("%d rows of value %q, of which %d are of the first %d with their fence's token", all, value, got, n)
	}
	for _, id := range []int{1, n} {
		if resource := fmt.Sprint("invoice-", id); !b.free(t, resource) {
			t.Errorf("%s is still held", resource)
		}
	}
}

// Each row is written under a lease of its own, in as many batches as it takes: new ones, old ones, and both at once.
func TestImportWritesEachRowUnderItsOwnLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for _, step := range []struct {
		value string
		ids   int
		opts  *fencepost.ImportOptions
	}{{"one", 25, batchesOf(10)}, {"again", 30, batchesOf(10)}, {"exact", 30, batchesOf(15)}, {"big", 2500, nil}} {
		n, err := b.table.Import(t.Context(), loadColumns, sourceOf(step.value, upTo(step.ids)...), step.opts)
		if err != nil || n != int64(step.ids) {
			t.Fatalf("%d rows, %v", n, err)
		}
		wantImported(t, b, step.value, step.ids)
	}
	if n, err := b.table.Import(t.Context(), loadColumns, sourceOf("none"), nil); n != 0 || err != nil {
		t.Errorf("no rows: %d, %v", n, err)
	}
	rows := pgx.CopyFromRows([][]any{{"turned", "2"}, {"turned", "1"}})
	if n, err := b.table.Import(t.Context(), []string{"value", "id"}, rows, nil); n != 2 || err != nil {
		t.Errorf("columns in another order: %d, %v", n, err)
	}
	wantImported(t, b, "turned", 2)
}

// Rows that share a resource are written under one lease.
func TestImportOfGroups(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	type Line struct {
		Order, Number, LastFencingToken int64
	}
	exec(t, b.pool, `CREATE TABLE app.line ("order" bigint, number bigint,
		last_fencing_token bigint NOT NULL DEFAULT 0, PRIMARY KEY ("order", number))`)
	table, err := fencepost.NewTable[Line](t.Context(), b.store, fencepost.TableSpec{
		Schema: "app", Name: "line", Key: []string{"order", "number"}, Resource: fencepost.PerGroup("order-", "order"),
	})
	if err != nil {
		t.Fatal(err)
	}
	source := func() pgx.CopyFromSource {
		return pgx.CopyFromSlice(60, func(i int) ([]any, error) { return []any{i % 7, i}, nil })
	}
	// In batches of 9, each batch has the seven resources of the one before.
	tok := 1
	for _, opts := range []*fencepost.ImportOptions{nil, batchesOf(9)} {
		if n, err := table.Import(t.Context(), []string{"order", "number"}, source(), opts); n != 60 || err != nil {
			t.Fatalf("%d rows, %v", n, err)
		}
		sql := `SELECT count(*) FROM app.line WHERE last_fencing_token BETWEEN $1 AND 1 + 7 * ($1 - 1)`
		if count := value[int](t, b.pool, sql, tok); count != 60 {
			t.Errorf("%d rows carry a token of import %d", count, tok)
		}
		tok++
	}
}

// An error ends the import between two batches: the first rows of the source have been written, their number is
// returned, and nothing else has been written.
func TestImportWritesTheFirstRowsOfTheSourceOrTellsHowMany(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `TRUNCATE app.invoice`)
	exec(t, b.pool,
		`INSERT INTO app.invoice (id, value, last_fencing_token) VALUES ('27', 'ahead', 50), ('28', 'ahead', 50)`)
	n, err := b.table.Import(t.Context(), loadColumns, sourceOf("new", upTo(40)...), batchesOf(10))
	var many *fencepost.BatchError
	if wantErr(t, err, fencepost.ErrStale); !errors.As(err, &many) || n != 20 || many.Stale != 2 || many.Failed() != 2 {
		t.Fatalf("%d rows, %v", n, err)
	}
	if f := many.Failures; f[0].Index != 26 || f[1].Index != 27 || f[0].Key[0] != "27" {
		t.Errorf("failures %+v", f)
	}
	wantImported(t, b, "new", 20)
	if got := countInvoices(t, b, `value = 'ahead' AND last_fencing_token = 50`); got != 2 {
		t.Errorf("%d rows that are ahead stand", got)
	}

	broken := errors.New("the file is broken")
	source := pgx.CopyFromFunc(func() func() ([]any, error) {
		i := 0
		return func() ([]any, error) {
			if i++; i > 15 {
				return nil, broken
			}
			return []any{fmt.Sprint(i), "part"}, nil
		}
	}())
	n, err = b.table.Import(t.Context(), loadColumns, source, batchesOf(10))
	if wantErr(t, err, broken); n != 10 {
		t.Errorf("%d rows before the source's error", n)
	}
	wantImported(t, b, "part", 10)
	n, err = b.table.Import(t.Context(), loadColumns, sourceOf("twice", append(upTo(13), 12)...), batchesOf(10))
	if wantErr(t, err, fencepost.ErrInvalid); n != 10 {
		t.Errorf("%d rows before a key that stands twice", n)
	}
	wantImported(t, b, "twice", 10)
}

// The import waits for a resource that another holder has. With NoWait that ends the import, which then holds nothing.
func TestImportMeetsAHolder(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	holder := acquire(t, b.another(t), "invoice-15", nil)
	opts := batchesOf(10)
	opts.Acquire = &fencepost.AcquireOptions{NoWait: true}
	n, err := b.table.Import(t.Context(), loadColumns, sourceOf("a", upTo(30)...), opts)
	var held *fencepost.HeldError
	if !errors.As(err, &held) || held.Resource != "invoice-15" || n != 10 {
		t.Fatalf("%d rows, %v", n, err)
	}
	wantImported(t, b, "a", 10)
	if !b.free(t, "invoice-11") || !b.free(t, "invoice-20") {
		t.Error("a lease of the batch is still held")
	}
	imported := make(chan error, 1)
	go func() {
		imported <- second(b.table.Import(t.Context(), loadColumns, sourceOf("b", upTo(30)...), batchesOf(10)))
	}()
	untilQueued(t, b, "invoice-15")
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-imported; err != nil {
		t.Fatal(err)
	}
	wantImported(t, b, "b", 30)
}

// Imports of the same rows in opposite orders, in batches that overlap, all finish.
func TestImportsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for worker := range 4 {
		ids := upTo(60)
		if worker%2 == 1 {
			slices.Reverse(ids)
		}
		all.Go(func() {
			n, err := b.table.Import(ctx, loadColumns, sourceOf(fmt.Sprint(worker), ids...), batchesOf(10+worker))
			if err != nil || n != 60 {
				t.Errorf("worker %d: %d rows, %v", worker, n, err)
			}
		})
	}
	all.Wait()
	n := countInvoices(t, b, `last_fencing_token >= 4 AND last_fencing_token = (SELECT f.token FROM fencepost.fence AS f
		WHERE f.resource = $1 || ':invoice-' || id)`, b.opts.Namespace)
	if n != 60 {
		t.Errorf("%d rows were written last under the lease that was claimed last", n)
	}
}

// One of the leases is overtaken between its claim and the write of the batch, which can happen if the batch had to
// wait for a lease: nothing of the batch is written. The control, in package pgbatch, writes without the guards.
func TestAnImportThatIsOvertakenWritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	holder := acquire(t, b.another(t), "invoice-15", nil)
	opts := b.opts
	opts.Events.Acquired = func(ctx context.Context, resource string, tok fencepost.Token, _ time.Duration) {
		if resource != "invoice-15" {
			return
		}
		_, err := b.pool.Exec(ctx, `SELECT fencepost.claim($1, $2, gen_random_uuid())`,
			opts.Namespace+":"+resource, int64(tok)+1)
		if err != nil {
			t.Error(err)
		}
	}
	store, err := fencepost.New(b.pool, b.rdb, &opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, store)
	ended := make(chan error, 1)
	var n int64
	go func() {
		var err error
		n, err = invoices.Import(t.Context(), loadColumns, sourceOf("late", upTo(30)...), batchesOf(10))
		ended <- err
	}()
	untilQueued(t, b, "invoice-15")
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, fencepost.ErrStale) || n != 10 {
		t.Errorf("%d rows, %v", n, err)
	}
	wantImported(t, b, "late", 10)
}

func untilQueued(t *testing.T, b *bundle, resource string) {
	t.Helper()
	eventually(t, "it waits", func() bool {
		n, err := b.rdb.Exists(t.Context(), "fencepost:"+b.opts.Namespace+":{"+resource+"}:queue").Result()
		return err == nil && n == 1
	})
}

// If an earlier holder's transaction on one resource is open, the batch waits for it and is then written.
func TestImportWaitsForAGuardedTransactionOfOne(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	claim := fencepost.Claim{Resource: b.opts.Namespace + ":invoice-5", Token: 1, Nonce: token.Nonce{1}}
	exec(t, b.pool, `SELECT fencepost.claim($1, 1, $2::text::uuid)`, claim.Resource, claim.Nonce.Hex())
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `SELECT fencepost.enter($1, 1, $2::text::uuid)`, claim.Resource, claim.Nonce.Hex())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- second(b.table.Import(t.Context(), loadColumns, sourceOf("waited", upTo(10)...), nil))
	}()
	until(t, b.pool, claimWaits)
	if n := countInvoices(t, b, `value = 'waited'`); n != 0 {
		t.Errorf("%d rows were written beside the guard", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	wantImported(t, b, "waited", 10)
}

// A batch of free resources costs three round trips to PostgreSQL: begin with the claims, the rows, COMMIT.
func TestRoundTripsOfImport(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	pool, trips := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, store)
	for i, value := range []string{"prepares", "counted"} {
		before := trips.Load()
		if _, err := invoices.Import(t.Context(), loadColumns, sourceOf(value, upTo(30)...), batchesOf(10)); err != nil {
			t.Fatal(err)
		}
		if n := trips.Load() - before; i > 0 && n != 9 {
			t.Errorf("%d round trips for three batches, want 9", n)
		}
	}
}

// If Redis has lost its counters, the tokens are lifted above the fences.
func TestImportAfterRedisLostItsCounters(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for i, value := range []string{"before", "after"} {
		if _, err := b.table.Import(t.Context(), loadColumns, sourceOf(value, upTo(20)...), nil); err != nil {
			t.Fatal(err)
		}
		wantImported(t, b, value, 20)
		if n := countInvoices(t, b, `last_fencing_token = $1`, i+1); n != 20 {
			t.Errorf("%d rows carry token %d", n, i+1)
		}
		b.dropKeys(t)
	}
}

func TestImportIntoAProtectedTable(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	for value, invoices := range map[string]*fencepost.Table[Invoice]{
		"declared before": b.table, "declared after": table(t, b.store),
	} {
		n, err := invoices.Import(t.Context(), loadColumns, sourceOf(value, upTo(150)...), batchesOf(100))
		if err != nil || n != 150 {
			t.Fatalf("%d rows, %v", n, err)
		}
		wantImported(t, b, value, 150)
		b.dropKeys(t) // the next claims are refused at first
	}
}

func TestALostReplyToTheCommitOfAnImportIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	store, proxy := behindProxy(t, b)
	invoices := table(t, store)
	if _, err := invoices.Import(t.Context(), loadColumns, sourceOf("prepares", 1, 2), nil); err != nil {
		t.Fatal(err)
	}
	dropped := proxy.DropNextReply(faults.Commit())
	n, err := invoices.Import(t.Context(), loadColumns, sourceOf("settled", upTo(30)...), batchesOf(10))
	if <-dropped; n != 30 || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
	wantImported(t, b, "settled", 30)
}

func TestImportRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		columns []string
		source  pgx.CopyFromSource
		opts    *fencepost.ImportOptions
	}{
		"no source":       {loadColumns, nil, nil},
		"no key":          {[]string{"value"}, sourceOf("x", 1), nil},
		"twice":           {[]string{"id", "value", "value"}, sourceOf("x", 1), nil},
		"no such column":  {[]string{"id", "nothing"}, sourceOf("x", 1), nil},
		"token column":    {[]string{"id", "last_fencing_token"}, sourceOf("x", 1), nil},
		"short row":       {loadColumns, pgx.CopyFromRows([][]any{{"1"}}), nil},
		"key without":     {loadColumns, pgx.CopyFromRows([][]any{{nil, "x"}}), nil},
		"negative batch":  {loadColumns, sourceOf("x", 1), batchesOf(-1)},
		"too big a batch": {loadColumns, sourceOf("x", 1), batchesOf(1001)},
		"lease": {
			loadColumns, sourceOf("x", 1),
			&fencepost.ImportOptions{Acquire: &fencepost.AcquireOptions{TTL: time.Nanosecond}},
		},
	} {
		n, err := b.table.Import(t.Context(), c.columns, c.source, c.opts)
		if !errors.Is(err, fencepost.ErrInvalid) || n != 0 {
			t.Errorf("%s: %d rows, %v", name, n, err)
		}
	}
	_, err := b.table.Import(ended, loadColumns, sourceOf("x", 1), nil)
	wantErr(t, err, context.Canceled)
	err = b.store.Do(t.Context(), "r", func(ctx context.Context, _ pgx.Tx) error {
		return second(b.table.Import(ctx, loadColumns, sourceOf("x", 1), nil))
	})
	wantErr(t, err, fencepost.ErrInvalid)
	if n := countInvoices(t, b, `value = 'x'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// explosive is a value whose encoding panics.
type explosive struct{ err error }

func (e explosive) Value() (driver.Value, error) { panic(e.err) }

// If the encoding of a value panics, the leases of the batch are given back.
func TestAnImportThatPanicsGivesItsLeasesBack(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	bug := errors.New("a bug of the caller")
	err := recovered(func() error {
		source := pgx.CopyFromRows([][]any{{"1", "fine"}, {"2", explosive{bug}}})
		return second(b.table.Import(t.Context(), loadColumns, source, nil))
	})
	wantErr(t, err, bug)
	for _, resource := range []string{"invoice-1", "invoice-2"} {
		if !b.free(t, resource) {
			t.Errorf("%s is still held", resource)
		}
	}
}
