package pgbatch_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// failing is a source of endless rows that does something after the third.
type failing struct {
	id    int
	where string
	do    func()
	after int // calls of Next since then
}

func (f *failing) Next() bool {
	if f.id >= 3 {
		f.after++
	}
	f.id++
	f.at("Next")
	return true
}

func (f *failing) Values() ([]any, error) {
	f.at("Values")
	return []any{100 + f.id, "new"}, nil
}

func (f *failing) Err() error {
	f.at("Err")
	return nil
}

func (f *failing) at(where string) {
	if f.where == where && f.id >= 3 {
		f.do()
	}
}

// recovered runs a call and returns the value it panicked with.
func recovered(call func() error) (panicked any, err error) {
	defer func() { panicked = recover() }()
	return nil, call()
}

// A source that panics does so in the goroutine that loads, where its caller can recover: nothing is written, and the
// connection remains usable.
func TestAPanicOfASourceIsTheLoaders(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	why := errors.New("a bug")
	for _, where := range []string{"Next", "Values", "Err"} {
		conn := one(t, m.Pool)
		panicked, err := recovered(func() error {
			return stageOn(t.Context(), conn, m.Batches, &failing{where: where, do: func() { panic(why) }})
		})
		if got, ok := panicked.(error); !ok || !errors.Is(got, why) {
			t.Errorf("%s: recovered %v, %v; want %v", where, panicked, err, why)
		}
		if conn.Conn().IsClosed() {
			t.Errorf("%s: the connection is closed", where)
		}
		conn.Release()
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	noStagingTables(t, m.Pool)
}

// A source that ends its goroutine, as a failing test does, does not keep the load waiting forever.
func TestASourceThatEndsItsGoroutineIsInvalid(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	for _, where := range []string{"Next", "Values", "Err"} {
		conn := one(t, m.Pool)
		err := stageOn(t.Context(), conn, m.Batches, &failing{where: where, do: runtime.Goexit})
		fencetest.WantOnly(t, where, err, pgerr.ErrInvalid)
		conn.Release()
	}
	if n := fencetest.Count(t, m.Pool, `value <> 'old'`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// Once the context has ended, no further rows are requested from a source.
func TestASourceIsNotAskedOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	m := fencetest.SetupBatch(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &failing{where: "Values", do: cancel}
	conn := one(t, m.Pool)
	defer conn.Release()
	err := stageOn(ctx, conn, m.Batches, f)
	fencetest.WantErr(t, err, pgerr.ErrUnavailable, context.Canceled)
	if f.after != 0 {
		t.Errorf("asked %d times more", f.after)
	}
}

func one(t *testing.T, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func stageOn(ctx context.Context, conn *pgxpool.Conn, batches *pgbatch.BatchWriter, source pgx.CopyFromSource) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := batches.Stage(ctx, tx, []string{"id", "value"}, source)
		return err
	})
}
