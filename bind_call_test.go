package fencepost_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// lockedRow locks a row against the writes of others until the returned function is called.
func (b *bundle) lockedRow(t *testing.T, id string) (holder pgx.Tx, unlock func()) {
	t.Helper()
	holder, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end := func() { _ = holder.Rollback(context.Background()) }
	t.Cleanup(end)
	if _, err := holder.Exec(t.Context(), `SELECT FROM app.invoice WHERE id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	return holder, end
}

// updating starts an update of a locked row, and returns once the update waits.
func (b *bundle) updating(ctx context.Context, t *testing.T, l *fencepost.Lease, holder pgx.Tx) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.table.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": "late"}) }()
	fencetest.UntilBlockedBy(t, b.pool, holder)
	return done
}

// Calls under one lease that pass the same context end independently: the end of one does not end another.
func TestCallsOfOneContextEndEachForItself(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holder, unlock := b.lockedRow(t, "1")
	waiting := b.updating(ctx, t, l, holder)
	other, cancelOther := context.WithCancel(t.Context())
	defer cancelOther()
	for _, ctx := range []context.Context{ctx, other, ctx} {
		if _, err := b.table.Get(ctx, l, fencepost.Key{"1"}); err != nil {
			t.Fatal(err)
		}
	}
	cancelOther()
	wantErr(t, second(b.table.Get(other, l, fencepost.Key{"1"})), context.Canceled)
	unlock()
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	cancel()
	wantErr(t, b.table.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}), context.Canceled)
	if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "next"}); err != nil {
		t.Fatal(err)
	}
}

// A call ends with its lease, even if an earlier call passed the same context.
func TestEveryCallOfOneContextEndsWithTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	ctx := t.Context()
	if err := b.table.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": "first"}); err != nil {
		t.Fatal(err)
	}
	holder, _ := b.lockedRow(t, "1")
	waiting := b.updating(ctx, t, l, holder)
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err == nil {
		t.Fatal("the update outlived the lease")
	}
	wantErr(t, b.table.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}), fencepost.ErrLost)
}

// uncomparable is a context of a type that panics if two of its values are compared.
type uncomparable struct {
	context.Context //nolint:containedctx // a context itself

	_ []int
}

// A call takes a context of any type.
func TestACallTakesAContextThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	for range 2 {
		ctx := uncomparable{Context: t.Context()}
		if err := b.table.Update(ctx, l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAGuardedUpdateAllocatesLikeAPlainOne: what is the same for every write under a lease is made once.
func TestAGuardedUpdateAllocatesLikeAPlainOne(t *testing.T) { //nolint:paralleltest // others would be counted
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	plain := testing.AllocsPerRun(200, func() {
		exec(t, b.pool, `UPDATE app.invoice SET value = $1 WHERE id = $2`, "v", "1")
	})
	guarded := testing.AllocsPerRun(200, func() {
		if err := b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "v"}); err != nil {
			t.Fatal(err)
		}
	})
	const more = 4 // the key and the set of the caller among them
	if guarded > plain+more {
		t.Errorf("a guarded update allocates %v times, a plain one %v", guarded, plain)
	}
	t.Logf("plain %v, guarded %v", plain, guarded)
}
