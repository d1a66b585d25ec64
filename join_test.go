package fencepost_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// insert writes a row of its own.
func insert(id string) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO app.invoice (id) VALUES ($1)`, id)
		return err
	}
}

// rows returns the ids of the rows that begin with a prefix.
func rows(t *testing.T, q interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, prefix string,
) []string {
	t.Helper()
	found, err := q.Query(t.Context(), `SELECT id FROM app.invoice WHERE starts_with(id, $1) ORDER BY id`, prefix)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// C38: the inner work runs in the transaction that is already open, over every source of leases.
func TestCase38_JoinRunsInTheTransactionThatIsOpen(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open("")
			joined := func(outcome error) error { // nothing is held at first, so this is a Do
				return s.Join(shortly(t.Context(), t), "r", func(ctx context.Context, tx pgx.Tx) error {
					outer, _ := fencepost.ClaimFromContext(ctx)
					if err := insert(name+"/a")(ctx, tx); err != nil {
						return err
					}
					err := s.Join(ctx, "r", func(ctx context.Context, inner pgx.Tx) error {
						if c, ok := fencepost.ClaimFromContext(ctx); !ok || c != outer {
							t.Error("the joined work has another claim")
						}
						if seen := rows(t, inner, name+"/"); len(seen) != 1 {
							t.Errorf("the joined work sees %v", seen)
						}
						return errors.Join(insert(name+"/b")(ctx, inner), s.Join(ctx, "r", insert(name+"/c")))
					})
					return errors.Join(err, outcome)
				})
			}
			failed := errors.New("the work around it failed")
			if wantErr(t, joined(failed), failed); len(rows(t, pool, name+"/")) != 0 {
				t.Error("the joined work was kept by a transaction that rolled back")
			}
			if err := joined(nil); err != nil {
				t.Fatal(err)
			}
			if got := rows(t, pool, name+"/"); !slices.Equal(got, []string{name + "/a", name + "/b", name + "/c"}) {
				t.Errorf("committed: %v", got)
			}
		})
	}
}

// If joined work fails in any way, its writes are undone, and the enclosing transaction goes on under its guard.
func TestCase38_JoinedWorkThatFailsIsUndoneAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	failed := errors.New("the joined work failed")
	after := func(id string, then func(ctx context.Context, tx pgx.Tx) error) fencepost.TxFunc {
		return func(ctx context.Context, tx pgx.Tx) error {
			if err := insert(id)(ctx, tx); err != nil {
				return err
			}
			return then(ctx, tx)
		}
	}
	for name, c := range map[string]struct {
		then func(ctx context.Context, tx pgx.Tx) error
		want error
	}{
		"an error": {func(context.Context, pgx.Tx) error { return failed }, failed},
		"an overlooked one": {
			func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, `SELECT 1/0`); return nil },
			pgx.ErrTxCommitRollback,
		},
		"a COMMIT": {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, fencepost.ErrInvalid},
		"an open savepoint": {
			func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
			fencepost.ErrInvalid,
		},
		"a panic": {func(context.Context, pgx.Tx) error { panic(failed) }, failed},
	} {
		resource := "invoice-" + name
		if err := b.store.Do(t.Context(), resource, setValue("makes the fence, so that others see it")); err != nil {
			t.Fatal(err)
		}
		err := b.store.Do(t.Context(), resource, func(ctx context.Context, tx pgx.Tx) error {
			if err := insert(name+"/kept")(ctx, tx); err != nil {
				return err
			}
			wantErr(t, recovered(func() error { return b.store.Join(ctx, resource, after(name+"/undone", c.then)) }), c.want)
			claim := b.claimWaits(t, resource)
			if err := b.store.Join(ctx, resource, insert(name+"/later")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return claim
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := rows(t, b.pool, name+"/"); !slices.Equal(got, []string{name + "/kept", name + "/later"}) {
			t.Errorf("%s: committed %v", name, got)
		}
	}
}

// recovered returns what work panics with as its error.
func recovered(work func() error) (err error) {
	defer func() {
		if p, ok := recover().(error); ok {
			err = p
		}
	}()
	return work()
}

// claimWaits returns nil if the guard of an open transaction makes a claim of its resource wait.
func (b *bundle) claimWaits(t *testing.T, resource string) error {
	t.Helper()
	_, err := b.pool.Exec(
		t.Context(),
		`SELECT FROM fencepost.fence WHERE resource = $1 FOR UPDATE NOWAIT`,
		b.opts.Namespace+":"+resource,
	)
	if err == nil {
		return errors.New("the guard has gone with the savepoint")
	}
	return nil
}

// Under a lease without a transaction, Join is a Tx. Without a lease, or under one of another resource, it is a Do. It
// never runs in a transaction that has ended.
func TestCase38_JoinWithoutATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "r", nil)
	if err := b.store.Join(shortly(l.Context(), t), "r", insert("under/1")); err != nil || l.Err() != nil {
		t.Errorf("%v; the lease: %v", err, l.Err())
	}
	var leaked context.Context
	err := b.store.Tx(
		t.Context(),
		func(ctx context.Context, _ pgx.Tx) error { leaked = context.WithoutCancel(ctx); return nil },
		l,
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.store.Join(shortly(leaked, t), "r", insert("under/2")); err != nil {
		t.Error(err)
	}
	wantHeldByCaller(t, "another store's lease", b.another(t).Join(shortly(l.Context(), t), "r", insert("x")))
	if err := b.store.Join(shortly(l.Context(), t), "s", insert("under/3")); err != nil {
		t.Errorf("of another resource: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.store.Join(shortly(context.WithoutCancel(l.Context()), t), "r", insert("under/4")); err != nil {
		t.Errorf("under a lease that is over: %v", err)
	}
	if got := rows(t, b.pool, "under/"); len(got) != 4 {
		t.Errorf("committed %v", got)
	}
	wantErr(t, b.store.Join(t.Context(), "r", nil), fencepost.ErrInvalid)
	wantErr(t, b.store.Join(t.Context(), "", insert("x")), fencepost.ErrInvalid)
}

// A transaction whose rows are open, or whose lease is over, cannot be joined.
func TestCase38_JoinRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	err := b.store.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		open, err := tx.Query(ctx, `SELECT 1`)
		if err != nil {
			return err
		}
		wantErr(t, b.store.Join(ctx, "r", insert("x")), fencepost.ErrInvalid)
		open.Close()
		l, _ := fencepost.FromContext(ctx)
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		return b.store.Join(context.WithoutCancel(ctx), "r", insert("x"))
	})
	if wantErr(t, err, fencepost.ErrLost); len(rows(t, b.pool, "x")) != 0 {
		t.Error("it was written")
	}
}
