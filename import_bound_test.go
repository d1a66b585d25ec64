package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
)

// A lease that is lost while its batch is being written ends the write, even one that waits: nothing of it is
// committed, and its other leases are given back.
func TestALeaseThatIsLostEndsTheWriteOfItsBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	if _, err := b.table.Import(t.Context(), loadColumns, sourceOf("old", upTo(20)...), nil); err != nil {
		t.Fatal(err)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM app.invoice WHERE id = '15' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a write that goes on ends with it
	defer cancel()
	opts := batchesOf(10)
	opts.Acquire = &fencepost.AcquireOptions{TTL: 3 * time.Second}
	var n int64
	ended := make(chan error, 1)
	go func() {
		var err error
		n, err = b.table.Import(ctx, loadColumns, sourceOf("new", upTo(20)...), opts)
		ended <- err
	}()
	until(t, b.pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	if err := b.rdb.Del(t.Context(), "fencepost:"+b.opts.Namespace+":{invoice-13}:lease").Err(); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	var lost *fencepost.LostError
	if !errors.As(err, &lost) || lost.Resource != "invoice-13" || n != 10 || ctx.Err() != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	wantImported(t, b, "new", 10)
	if !b.free(t, "invoice-11") || !b.free(t, "invoice-20") {
		t.Error("a lease of the batch is still held")
	}
}
