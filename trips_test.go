package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Once costs four round trips besides its work: the ledger, begin, the result, COMMIT. If the work has been done, it
// costs one.
func TestRoundTripsOfOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	pool, trips := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, store, "invoice-1", nil)
	exec(t, pool, `SELECT fencepost.begin_incarnation()`)
	once := func(key string) int64 {
		before := trips.Load()
		_, err := fencepost.Once(t.Context(), l, key, toAnn, func(context.Context, pgx.Tx) (int, error) { return 1, nil })
		if err != nil {
			t.Fatal(err)
		}
		return trips.Load() - before
	}
	once("prepares the statements")
	if n := once("k"); n != 4 {
		t.Errorf("%d round trips, want 4", n)
	}
	if n := once("k"); n != 1 {
		t.Errorf("done already: %d round trips, want 1", n)
	}
}

// Each method costs one round trip if it is applied and two if it is refused. Modify costs four.
func TestRoundTripsOfATable(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	pool, trips := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices, resources := table(t, store), map[string]*fencepost.Lease{}
	for _, id := range []string{"1", "9"} {
		resources[id] = acquire(t, store, "invoice-"+id, nil)
	}
	exec(t, pool, `SELECT fencepost.begin_incarnation()`)
	for _, step := range []struct {
		method, id string
		trips      int64
		want       error
	}{
		{"get", "1", 1, nil},
		{"claim", "1", 1, nil},
		{"update", "1", 1, nil},
		{"upsert", "1", 1, nil},
		{"modify", "1", 4, nil},
		{"insert", "1", 2, fencepost.ErrExists},
		{"claim", "9", 2, fencepost.ErrNotFound},
		{"update", "9", 2, fencepost.ErrNotFound},
		{"delete", "9", 2, fencepost.ErrNotFound},
		{"insert", "9", 1, nil},
		{"delete", "9", 1, nil},
	} {
		call := every(t, invoices, resources[step.id], fencepost.Key{step.id})[step.method]
		prepared := call() // prepares the statements
		if step.method == "insert" && step.want == nil {
			exec(t, b.pool, `DELETE FROM app.invoice WHERE id = $1`, step.id)
		}
		if step.method == "delete" && step.want == nil {
			exec(t, b.pool, `INSERT INTO app.invoice (id) VALUES ($1)`, step.id)
		}
		before := trips.Load()
		err := call()
		if n := trips.Load() - before; n != step.trips || !errors.Is(err, step.want) {
			t.Errorf(
				"%s of row %s: %d round trips, want %d; %v (before that, %v)",
				step.method,
				step.id,
				n,
				step.trips,
				err,
				prepared,
			)
		}
	}
}
