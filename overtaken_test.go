package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
)

// tally counts events.
type tally struct {
	stale atomic.Int32
	lost  chan *fencepost.LostError
}

func newTally() *tally { return &tally{lost: make(chan *fencepost.LostError, 100)} }

func (c *tally) events() fencepost.Events {
	return fencepost.Events{
		Stale: func(_ context.Context, _ *fencepost.StaleError) { c.stale.Add(1) },
		Lost:  func(_ context.Context, _ string, _ fencepost.Token, cause *fencepost.LostError) { c.lost <- cause },
	}
}

// overtake claims a higher token for the lease's resource by SQL.
func overtake(t *testing.T, pool *pgxpool.Pool, l *fencepost.Lease) {
	t.Helper()
	exec(t, pool, `SELECT fencepost.claim($1, $2, gen_random_uuid(), 'somebody')`, l.Claim().Resource, int64(l.Token())+1)
}

// waysToWrite are the calls by which a holder of invoice-1 learns that he has been overtaken.
func waysToWrite(
	ctx context.Context,
	s *fencepost.Store,
	invoices *fencepost.Table[Invoice],
) map[string]func(*fencepost.Lease) error {
	key, set := fencepost.Key{"1"}, fencepost.Set{"value": "x"}
	return map[string]func(*fencepost.Lease) error{
		"Tx":     func(l *fencepost.Lease) error { return s.Tx(ctx, setValue("x"), l) },
		"Join":   func(l *fencepost.Lease) error { return s.Join(l.Context(), l.Resource(), setValue("x")) },
		"Once":   func(l *fencepost.Lease) error { return second(fencepost.Once(ctx, l, "k", nil, nothing)) },
		"Update": func(l *fencepost.Lease) error { return invoices.Update(ctx, l, key, set) },
		"Insert": func(l *fencepost.Lease) error { return invoices.Insert(ctx, l, key, set) },
		"Upsert": func(l *fencepost.Lease) error { return second(invoices.Upsert(ctx, l, key, set)) },
		"Delete": func(l *fencepost.Lease) error { return invoices.Delete(ctx, l, key) },
		"Stamp":  func(l *fencepost.Lease) error { return second(invoices.Stamp(ctx, l, key)) },
		"Modify": func(l *fencepost.Lease) error {
			return invoices.Modify(ctx, l, key, func(row *Invoice) error { row.Value = "x"; return nil })
		},
		"UpdateBatch": func(l *fencepost.Lease) error {
			return invoices.UpdateBatch(ctx, l, []fencepost.Change{{Key: key, Set: set}}, nil)
		},
		"UpsertBatch": func(l *fencepost.Lease) error {
			return second(invoices.UpsertBatch(ctx, l, []fencepost.Change{{Key: key, Set: set}}, nil))
		},
		"Load": func(l *fencepost.Lease) error {
			return second(invoices.Load(ctx, l, []string{"id", "value"}, pgx.CopyFromRows([][]any{{"1", "x"}}), nil))
		},
	}
}

func nothing(context.Context, pgx.Tx) (int, error) { return 0, nil }

// C53: a lease whose token PostgreSQL has refused as stale is over for every caller, and for Redis.
func TestCase53_AStaleLeaseIsOverAtOnce(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	delete(open, "NewAdvisoryTx") // its leases are transactions
	for name, open := range open {
		t.Run(name, func(t *testing.T) { // one after the other: they count what is acquired from one pool
			count := newTally()
			s := openStore(open, "", count.events())
			ways := waysToWrite(t.Context(), s, table(t, s))
			for way, write := range ways {
				l := acquire(t, s, "invoice-1", nil)
				overtake(t, pool, l)
				if err := write(l); !errors.Is(err, fencepost.ErrStale) || errors.Is(err, fencepost.ErrLost) {
					t.Errorf("%s: %v", way, err)
				}
				wantOvertaken(t, way, l)
				acquired := pool.Stat().AcquireCount()
				if wantErr(
					t,
					s.Tx(t.Context(), setValue("x"), l),
					fencepost.ErrLost,
					fencepost.ErrStale,
				); pool.Stat().
					AcquireCount() !=
					acquired {
					t.Errorf("%s: a connection was used for a lease that is over", way)
				}
				wantErr(t, l.Release(t.Context()), fencepost.ErrLost)
			}
			for range ways {
				if cause := <-count.lost; cause.Reason != fencepost.ReasonStale {
					t.Errorf("lost: %v", cause)
				}
			}
			if n := int(count.stale.Load()); n != len(ways) || len(count.lost) > 0 {
				t.Errorf("%d events for %d refusals, %d more of a loss", n, len(ways), len(count.lost))
			}
		})
	}
}

// wantOvertaken requires a lease of which every method says that it has been overtaken.
func wantOvertaken(t *testing.T, what string, l *fencepost.Lease) {
	t.Helper()
	for _, err := range []error{l.Err(), context.Cause(l.Context())} {
		var lost *fencepost.LostError
		if !errors.As(err, &lost) || lost.Reason != fencepost.ReasonStale || !errors.Is(err, fencepost.ErrStale) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if l.Remaining() != 0 || l.Context().Err() == nil {
		t.Errorf("%s: %v remain, %v", what, l.Remaining(), l.Context().Err())
	}
}

// The lease or lock of a stale holder is free for others before its TTL ends, though the holder never releases it.
func TestCase53_WhatAStaleLeaseHeldIsFree(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	delete(open, "NewAdvisoryTx")
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := openStore(open, ""), openStore(open, "")
			opts := &fencepost.AcquireOptions{TTL: time.Hour}
			if name == "NewAdvisory" {
				opts = nil // without a TTL: it is held for as long as its session lasts
			}
			l, err := s.Acquire(t.Context(), name, opts)
			if err != nil {
				t.Fatal(err)
			}
			overtake(t, pool, l)
			wantErr(t, second(other.TryAcquire(t.Context(), name, nil)), fencepost.ErrHeld) // the control
			wantErr(t, s.Tx(t.Context(), setValue("x"), l), fencepost.ErrStale)
			next, err := other.Acquire(shortly(t.Context(), t), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The same holds if the function meets the refusal in its own SQL, for a lease that its transaction was not given.
func TestCase53_ALeaseOfTheContextIsOverToo(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	for name, enter := range map[string]func(ctx context.Context, tx pgx.Tx, c fencepost.Claim) error{
		"Guard": fence.Enter,
		"SQL": func(ctx context.Context, tx pgx.Tx, c fencepost.Claim) error {
			_, err := tx.Exec(ctx, `SELECT fencepost.enter($1, $2, $3)`, c.Resource, int64(c.Token), c.Nonce.Hex())
			return err
		},
	} {
		overtaken, other := b.acquire(t, "overtaken by "+name, nil), b.acquire(t, "other than "+name, nil)
		overtake(t, b.pool, overtaken)
		err := b.store.Tx(shortly(overtaken.Context(), t), func(ctx context.Context, tx pgx.Tx) error {
			if err := enter(ctx, tx, overtaken.Claim()); err != nil {
				return fmt.Errorf("enter: %w", err)
			}
			return nil
		}, other)
		wantErr(t, err, fencepost.ErrStale)
		wantOvertaken(t, name, overtaken)
		if err := other.Err(); err != nil {
			t.Errorf("the lease that was not refused: %v", err)
		}
	}
}

// A refusal that does not concern the lease's own claim ends no lease: an older claim, a row ahead of its fence, a lift
// in progress.
func TestCase53_OtherRefusalsEndNoLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	earlier := b.acquire(t, "invoice-1", nil)
	if err := earlier.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	older, l := earlier.Claim(), b.acquire(t, "invoice-1", nil)
	err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error { return fence.Enter(ctx, tx, older) }, l)
	if wantErr(t, err, fencepost.ErrStale); l.Err() != nil {
		t.Errorf("an older claim: %v", l.Err())
	}
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 1 << 20 WHERE id = '1'`)
	done := make(chan error)
	for range 8 {
		go func() { done <- b.table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}) }()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Errorf("under a lease that is lifted: %v", err)
		}
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
}

// C50: if the function's own SQL meets a protected table's refusal, the error is the same as everywhere else.
func TestCase50_AProtectionsRefusalInsideATransactionIsStale(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	for name, open := range open {
		bills := pgx.Identifier{"app", "bills of " + name}.Sanitize()
		exec(
			t,
			pool,
			`CREATE TABLE `+bills+` (LIKE app.invoice INCLUDING ALL); INSERT INTO `+bills+` (id) VALUES ('1'), ('2')`,
		)
		exec(
			t,
			pool,
			`SELECT fencepost.protect($1::text::regclass, $2, 'bill-', '{id}')`,
			bills,
			pool.Config().ConnConfig.Database+name,
		)
		outside := func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE `+bills+` SET value = 'x' WHERE id = '2'`); err != nil {
				return fmt.Errorf("pay the bill: %w", err)
			}
			return nil
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := newTally()
			s := open("", count.events())
			got := map[string]error{
				"Do": s.Do(t.Context(), name+"-1", outside),
				"Join": s.Do(t.Context(), name+"-1", func(ctx context.Context, _ pgx.Tx) error {
					return s.Join(ctx, name+"-1", outside)
				}),
			}
			if s, ok := s.(*fencepost.Store); ok {
				l := acquire(t, s, name+"-1", nil)
				got["Tx"] = s.Tx(t.Context(), outside, l)
				got["Once"] = second(fencepost.Once(t.Context(), l, name, nil, func(ctx context.Context, tx pgx.Tx) (int, error) {
					return 0, outside(ctx, tx)
				}))
				if err := l.Err(); err != nil {
					t.Errorf("nobody has overtaken the lease: %v", err)
				}
			}
			for way, err := range got {
				wantNotEntered(t, way, err, "bill-2")
				if server := (*pgconn.PgError)(nil); !containsAll(err.Error(), "pay the bill") || !errors.As(err, &server) {
					t.Errorf("%s: the function's own error has gone: %v", way, err)
				}
			}
			if n := int(count.stale.Load()); n != len(got) {
				t.Errorf("%d events for %d refusals", n, len(got))
			}
		})
	}
}

func wantNotEntered(t *testing.T, what string, err error, resource string) {
	t.Helper()
	var refused *fencepost.NotEnteredError
	if !errors.Is(err, fencepost.ErrStale) || !errors.As(err, &refused) || refused.Resource != resource {
		t.Errorf("%s: got %v, want a NotEnteredError of %q", what, err, resource)
	}
}

// C50 for the methods of a Table, whose statement reaches another row through one of the application's triggers.
func TestCase50_ATriggerThatReachesAnotherRowIsStale(t *testing.T) {
	t.Parallel()
	count := newTally()
	b := setup(t, fencepost.Options{Events: count.events()})
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	exec(t, b.pool, `
		CREATE FUNCTION app.touch() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN UPDATE app.invoice SET value = 'touched' WHERE id = '2'; RETURN NULL; END $$;
		CREATE TRIGGER touch AFTER UPDATE ON app.invoice FOR EACH ROW WHEN (NEW.id = '1') EXECUTE FUNCTION app.touch()`)
	l := b.acquire(t, "invoice-1", nil)
	ways := waysToWrite(t.Context(), b.store, b.table)
	for _, updatesNothing := range []string{"Once", "Insert", "Delete"} {
		delete(ways, updatesNothing)
	}
	for way, write := range ways {
		wantNotEntered(t, way, write(l), "invoice-2")
	}
	if n := int(count.stale.Load()); n != len(ways) || l.Err() != nil {
		t.Errorf("%d events for %d refusals; the lease: %v", n, len(ways), l.Err())
	}
}
