package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// blockedImport starts an import of twenty rows in batches of ten, and returns once its first batch waits for a row.
func (b *bundle) blockedImport(ctx context.Context, t *testing.T, value string) (ended <-chan error, unlock func()) {
	t.Helper()
	holder, unlock := b.lockedRow(t, "1")
	done := make(chan error, 1)
	go func() {
		done <- second(b.table.Import(ctx, loadColumns, sourceOf(value, upTo(20)...), batchesOf(10)))
	}()
	fencetest.UntilBlockedBy(t, b.pool, holder)
	return done, unlock
}

// While one batch is written, the next batch has its leases, if they are free.
func TestImportAcquiresTheNextBatchWhileItWritesOne(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	ended, unlock := b.blockedImport(t.Context(), t, "ahead")
	eventually(t, "the leases of the next batch",
		func() bool { return !b.free(t, "invoice-11") && !b.free(t, "invoice-20") })
	unlock()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	wantImported(t, b, "ahead", 20)
}

// While an import has one batch, it does not wait for a lease of the next: otherwise two imports could wait for each
// other.
func TestImportWaitsForALeaseOnlyWithoutABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	other := b.another(t)
	later := acquire(t, other, "invoice-15", nil)
	ended, unlock := b.blockedImport(t.Context(), t, "later")
	// This holder waits for a lease of the first batch, while the import would have to wait for its own.
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Acquire(t.Context(), "invoice-5", nil)
		waiting <- err
	}()
	untilQueued(t, b, "invoice-5")
	unlock()
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	untilQueued(t, b, "invoice-15")
	if !b.free(t, "invoice-1") || b.free(t, "invoice-14") || !b.free(t, "invoice-16") {
		t.Error("while it waits, it holds something else than the leases before that one")
	}
	if err := later.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := countInvoices(t, b, `value = 'later'`); n != 20 {
		t.Errorf("%d rows", n)
	}
}

// While a batch waits for a lease, the next batch has none.
func TestImportAsksAheadOnlyWithAllLeasesOfABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	other := b.another(t)
	holder := acquire(t, other, "invoice-5", nil)
	i, read := 0, make(chan struct{})
	source := pgx.CopyFromFunc(func() ([]any, error) {
		if i++; i > 20 {
			return nil, nil
		}
		if i == 20 {
			close(read) // the second batch is complete
		}
		return []any{fmt.Sprint(i), "both"}, nil
	})
	ended := make(chan error, 1)
	go func() { ended <- second(b.table.Import(t.Context(), loadColumns, source, batchesOf(10))) }()
	untilQueued(t, b, "invoice-5")
	<-read
	// Nothing shows that it does not ask. If it asked, it would do so now.
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if !b.free(t, "invoice-15") {
			t.Fatal("it has leases of the next batch while it waits for one of this")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := other.Acquire(ctx, "invoice-15", nil) // under the lease that the import waits for
	if err != nil {
		t.Fatal(err)
	}
	if err := fencepost.ReleaseAll(t.Context(), l, holder); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// The control: an import that keeps one batch while it waits for the next deadlocks with such a holder.
func TestKeepingABatchWhileWaitingForTheNextDeadlocks(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	other := b.another(t)
	acquire(t, other, "invoice-15", nil)
	acquireAll(t, b.store, "invoice-1", "invoice-5")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Acquire(ctx, "invoice-5", nil)
		waiting <- err
	}()
	wantErr(t, second(b.store.AcquireAll(ctx, []string{"invoice-15", "invoice-16"}, nil)), fencepost.ErrHeld)
	wantErr(t, <-waiting, fencepost.ErrHeld)
}

// A slow source delays nobody: meanwhile the rows read so far are written, and their leases are released.
func TestASlowSourceOfAnImportHoldsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	i := 0
	source := pgx.CopyFromFunc(func() ([]any, error) {
		if i++; i > 20 {
			return nil, nil
		}
		if i == 15 {
			eventually(t, "the first batch to be written and released", func() bool {
				written := countInvoices(t, b, `value = 'slow'`) == 10
				return written && b.free(t, "invoice-1") && b.free(t, "invoice-10") && b.free(t, "invoice-11")
			})
		}
		return []any{fmt.Sprint(i), "slow"}, nil
	})
	if n, err := b.table.Import(t.Context(), loadColumns, source, batchesOf(10)); n != 20 || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
	wantImported(t, b, "slow", 20)
}

// If a batch fails, or the source or an encoding panics, the leases of the batch ahead are given back, and nothing of
// it is written.
func TestAnImportThatEndsGivesTheNextBatchBack(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	wantNothing := func(what string) {
		t.Helper()
		for _, id := range []int{1, 10, 11, 20} {
			if !b.free(t, fmt.Sprint("invoice-", id)) {
				t.Errorf("%s: invoice-%d is still held", what, id)
			}
		}
		if n := countInvoices(t, b, `value = 'never'`); n != 0 {
			t.Errorf("%s: %d rows were written", what, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, unlock := b.blockedImport(ctx, t, "never")
	eventually(t, "the leases of the next batch", func() bool { return !b.free(t, "invoice-20") })
	cancel()
	wantErr(t, <-ended, context.Canceled)
	unlock()
	wantNothing("cancelled")

	bug := errors.New("a bug of the caller")
	rows := [][]any{}
	for i := range 20 {
		rows = append(rows, []any{fmt.Sprint(i + 1), "never"})
	}
	rows[9][1] = explosive{bug}
	err := recovered(func() error {
		return second(b.table.Import(t.Context(), loadColumns, pgx.CopyFromRows(rows), batchesOf(10)))
	})
	wantErr(t, err, bug)
	wantNothing("an encoding panics")

	i := 0
	err = recovered(func() error {
		source := pgx.CopyFromFunc(func() ([]any, error) {
			if i++; i == 15 {
				panic(bug)
			}
			return []any{fmt.Sprint(i), "first"}, nil
		})
		return second(b.table.Import(t.Context(), loadColumns, source, batchesOf(10)))
	})
	wantErr(t, err, bug)
	wantNothing("the source panics")
	wantImported(t, b, "first", 10)
}

// The events of an import are those of the acquire and the release of each lease.
func TestEventsOfAnImport(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	j := newJournal(t)
	b.opts.Events = j.events()
	store, err := fencepost.New(b.pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, store)
	ctx := span(t.Context())
	if _, err := invoices.Import(ctx, loadColumns, sourceOf("told", 1, 2), nil); err != nil {
		t.Fatal(err)
	}
	j.want("claimed invoice-1 1", "claimed invoice-2 1", "acquired invoice-1 1", "acquired invoice-2 1",
		"released invoice-1 1", "released invoice-2 1")

	exec(t, b.pool, `ALTER FUNCTION fencepost.claim_all(text[], bigint[], uuid[], text) RENAME TO claim_none`)
	exec(t, b.pool, `ALTER FUNCTION fencepost.claim(text, bigint, uuid, text) RENAME TO claim_nothing`)
	_, err = invoices.Import(ctx, loadColumns, sourceOf("not told", 1, 2), nil)
	if err == nil {
		t.Fatal("imported without a claim")
	}
	errs := j.want("refused invoice-1")
	if !slices.ContainsFunc(errs, func(told error) bool { return errors.Is(err, told) }) {
		t.Errorf("told %v, returned %v", errs, err)
	}
}
