package work_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func tables(t *testing.T, w work.Workload) *pgxpool.Pool {
	t.Helper()
	pool := testenv.PoolOn(t, testenv.EmptyDatabase(t))
	if err := errors.Join(work.CreateTables(t.Context(), pool), work.Reset(t.Context(), pool, w)); err != nil {
		t.Fatal(err)
	}
	return pool
}

func operations(w work.Workload, worker int) func() *work.Operation {
	return work.Plan{Workload: w, Seed: 7, Worker: worker}.Operations()
}

func read(t *testing.T, db work.DB, op *work.Operation) *work.Seen {
	t.Helper()
	seen, err := work.Read(t.Context(), db, op, work.NoLock)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

func write(t *testing.T, db work.DB, op *work.Operation, seen *work.Seen) {
	t.Helper()
	if err := work.Write(t.Context(), db, op, seen); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, db work.DB, op *work.Operation) {
	t.Helper()
	write(t, db, op, read(t, db, op))
}

func wantAudit(t *testing.T, db work.DB, w work.Workload, acknowledged []work.Acknowledged, want work.Audit) {
	t.Helper()
	got, err := work.Look(t.Context(), db, w, acknowledged)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the audit of %s is %+v, want %+v", w, got, want)
	}
}

func acknowledge(ops ...*work.Operation) []work.Acknowledged {
	var done []work.Acknowledged
	for _, op := range ops {
		done = append(done, work.Acknowledged{ID: op.ID, Rows: op.Rows})
	}
	return done
}

// In every workload, work that is done one after the other is in the rows.
func TestTheAuditFindsNothingWrongWithOrderlyWork(t *testing.T) {
	t.Parallel()
	for _, w := range work.Workloads() {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			pool, next := tables(t, w), operations(w, 0)
			var done []*work.Operation
			for range 20 {
				op := next()
				do(t, pool, op)
				done = append(done, op)
			}
			wantAudit(t, pool, w, acknowledge(done...), work.Audit{Effects: 20})
		})
	}
}

// Two workers read the same row and write one after the other: the first one's update is lost, once for each row that
// it touched.
func TestTheAuditSeesALostUpdate(t *testing.T) {
	t.Parallel()
	for w, want := range map[work.Workload]work.Audit{
		work.HandOff:  {Effects: 2, LostUpdates: 1},
		work.Transfer: {Effects: 2, LostUpdates: 2},
		work.Batch:    {Effects: 2, LostUpdates: 50},
	} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			pool, next := tables(t, w), operations(w, 0)
			first, second := next(), next()
			second.Rows, second.Deltas = first.Rows, first.Deltas
			seen := read(t, pool, second)
			do(t, pool, first)
			write(t, pool, second, seen)
			wantAudit(t, pool, w, acknowledge(first, second), want)
		})
	}
}

// If one row loses an update and another does not, the accounts do not balance.
func TestTheAuditSeesMoneyThatIsGone(t *testing.T) {
	t.Parallel()
	pool, next := tables(t, work.Transfer), operations(work.Transfer, 0)
	first, second := next(), next()
	do(t, pool, first)
	second.Rows, second.Deltas = []int64{first.Rows[0], second.Rows[1]}, first.Deltas
	if second.Rows[1] == first.Rows[1] {
		second.Rows[1]++ // another account to give to
	}
	stale := read(t, pool, first)
	do(t, pool, second)
	third := *first
	third.ID = next().ID
	write(t, pool, &third, stale)
	wantAudit(t, pool, work.Transfer, nil, work.Audit{Effects: 3, LostUpdates: 1, Unbalanced: 1})
}

func TestTheAuditSeesADuplicate(t *testing.T) {
	t.Parallel()
	for _, w := range []work.Workload{work.Counter, work.Transfer, work.Batch} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			pool, op := tables(t, w), operations(w, 0)()
			for range 3 {
				do(t, pool, op)
			}
			wantAudit(t, pool, w, acknowledge(op), work.Audit{Effects: 1, Duplicates: 2})
		})
	}
}

// Two workers that both find an invoice missing make it twice, with ids of their own.
func TestTheAuditSeesASecondInvoice(t *testing.T) {
	t.Parallel()
	pool := tables(t, work.Invoice)
	first, second := operations(work.Invoice, 0)(), operations(work.Invoice, 1)()
	if first.ID == second.ID || first.Rows[0] != second.Rows[0] {
		t.Fatalf("the workers' operations are %+v and %+v", first, second)
	}
	seen := read(t, pool, second)
	do(t, pool, first)
	write(t, pool, second, seen)
	wantAudit(t, pool, work.Invoice, acknowledge(first, second), work.Audit{Effects: 2, Duplicates: 1})
}

// An operation that a worker reported as done and that is not in the rows is lost.
func TestTheAuditSeesAnAcknowledgedOperationThatIsMissing(t *testing.T) {
	t.Parallel()
	for _, w := range work.Workloads() {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			pool, next := tables(t, w), operations(w, 0)
			done, missing := next(), next()
			do(t, pool, done)
			wantAudit(t, pool, w, acknowledge(done), work.Audit{Effects: 1})
			wantAudit(t, pool, w, acknowledge(done, missing), work.Audit{Effects: 1, LostUpdates: 1})
		})
	}
}

// An invoice that somebody else made is not lost.
func TestAnInvoiceIsThereForAllWhoWantedIt(t *testing.T) {
	t.Parallel()
	pool := tables(t, work.Invoice)
	first, second := operations(work.Invoice, 0)(), operations(work.Invoice, 1)()
	for _, op := range []*work.Operation{first, second} {
		if err := work.InsertUnique(t.Context(), pool, op); err != nil {
			t.Fatal(err)
		}
	}
	wantAudit(t, pool, work.Invoice, acknowledge(first, second), work.Audit{Effects: 1})
}

// A write that requires the version that was read changes nothing if the row has another version.
func TestAWriteUnderAVersionSeesAnotherWrite(t *testing.T) {
	t.Parallel()
	pool, next := tables(t, work.Batch), operations(work.Batch, 0)
	first, second := next(), next()
	second.Rows = first.Rows
	seen := read(t, pool, second)
	if all, err := work.WriteUnchanged(t.Context(), pool, first, read(t, pool, first)); !all || err != nil {
		t.Errorf("the first write: %v, %v", all, err)
	}
	if all, err := work.WriteUnchanged(t.Context(), pool, second, seen); all || err != nil {
		t.Errorf("the second write: %v, %v", all, err)
	}
	wantAudit(t, pool, work.Batch, acknowledge(first), work.Audit{Effects: 1})
}

func TestAKeyIsUsedOnce(t *testing.T) {
	t.Parallel()
	pool, op := tables(t, work.Counter), operations(work.Counter, 0)()
	for _, want := range []bool{true, false} {
		if first, err := work.MarkDone(t.Context(), pool, op); first != want || err != nil {
			t.Errorf("got %v, %v, want %v", first, err, want)
		}
	}
}

// A row that does not exist is an error, not an update of nothing.
func TestReadingWhatIsNotThereFails(t *testing.T) {
	t.Parallel()
	pool, op := tables(t, work.Counter), operations(work.Counter, 0)()
	op.Rows = []int64{10_000}
	if _, err := work.Read(t.Context(), pool, op, work.RowLock); !errors.Is(err, work.ErrMissing) {
		t.Errorf("got error %v, want %v", err, work.ErrMissing)
	}
}

func TestBetweenMayBeNil(t *testing.T) {
	t.Parallel()
	op := &work.Operation{}
	if err := op.Pause(t.Context()); err != nil {
		t.Error(err)
	}
	broken := errors.New("broken")
	op.Between = func(context.Context) error { return broken }
	if err := op.Pause(t.Context()); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}
