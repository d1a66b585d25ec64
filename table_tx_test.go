package fencepost_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

const createOutbox = `CREATE TABLE app.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event text NOT NULL)`

// send puts an event into the outbox.
func send(ctx context.Context, tx pgx.Tx, event string) error {
	_, err := tx.Exec(ctx, `INSERT INTO app.outbox (event) VALUES ($1)`, event)
	return err
}

// sent is how many events have been committed.
func (b *bundle) sent(t *testing.T) int {
	t.Helper()
	return value[int](t, b.pool, `SELECT count(*) FROM app.outbox`)
}

func setupOutbox(t *testing.T, opts fencepost.Options) *bundle {
	t.Helper()
	b := setup(t, opts)
	exec(t, b.pool, createOutbox)
	return b
}

// rowWrites has each method of a TableTx that writes the row, by name.
func rowWrites(ctx context.Context, rows fencepost.TableTx[Invoice], id string) map[string]func() error {
	key, set := fencepost.Key{id}, fencepost.Set{"value": "x"}
	batch := []fencepost.Change{{Key: key, Set: set}}
	return map[string]func() error{
		"stamp":  func() error { return second(rows.Stamp(ctx, key)) },
		"update": func() error { return rows.Update(ctx, key, set) },
		"upsert": func() error { return second(rows.Upsert(ctx, key, set)) },
		"modify": func() error { return rows.Modify(ctx, key, func(row *Invoice) error { row.Value += "x"; return nil }) },
		"batch":  func() error { return rows.UpdateBatch(ctx, batch, nil) },
		"upserts": func() error {
			return second(rows.UpsertBatch(ctx, batch, nil))
		},
		"delete": func() error { return rows.Delete(ctx, key) },
	}
}

// everyRow is rowWrites and the other methods.
func everyRow(ctx context.Context, rows fencepost.TableTx[Invoice], id string) map[string]func() error {
	calls := rowWrites(ctx, rows, id)
	calls["get"] = func() error { return second(rows.Get(ctx, fencepost.Key{id})) }
	calls["insert"] = func() error { return rows.Insert(ctx, fencepost.Key{id}, nil) }
	calls["empty batch"] = func() error { return rows.UpdateBatch(ctx, nil, nil) }
	return calls
}

// Every method works inside a transaction of its table's store, and stamps the rows that it writes. A rollback undoes
// all of it.
func TestRowsInATransactionAreCommittedWithIt(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	l := b.acquire(t, "invoice-10", nil)
	key := fencepost.Key{"10"}
	work := func(outcome error) error {
		return b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			rows := b.table.In(tx)
			if err := rows.Insert(ctx, key, fencepost.Set{"value": "new"}); err != nil {
				return err
			}
			for name, write := range rowWrites(ctx, rows, "10") {
				if name == "delete" {
					continue
				}
				if err := write(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := rows.Delete(ctx, key); err != nil {
				return err
			}
			for _, want := range []bool{true, false} {
				if inserted, err := rows.Upsert(ctx, key, nil); err != nil || inserted != want {
					t.Errorf("inserted %v, %v", inserted, err)
				}
			}
			batch := []fencepost.Change{{Key: key, Set: fencepost.Set{"value": ""}}}
			if inserted, err := rows.UpsertBatch(ctx, batch, nil); err != nil || inserted != 0 {
				t.Errorf("the batch inserted %d, %v", inserted, err)
			}
			if err := rows.Modify(ctx, key, func(row *Invoice) error { row.Value += "m"; return nil }); err != nil {
				return err
			}
			if row, err := rows.Get(ctx, key); err != nil || row.Value != "m" || row.LastFencingToken != l.Token() {
				t.Errorf("the row is %+v, %v", row, err)
			}
			return errors.Join(send(ctx, tx, "made"), outcome)
		}, l)
	}
	why := errors.New("no")
	if wantErr(t, work(why), why); b.sent(t) != 0 || b.exists(t, "10") {
		t.Error("something of it was kept")
	}
	if err := work(nil); err != nil {
		t.Fatal(err)
	}
	if r := b.read(t, "10"); r.Value != "m" || r.LastFencingToken != l.Token() || b.sent(t) != 1 {
		t.Errorf("the row is %+v, %d events", r, b.sent(t))
	}
}

func (b *bundle) exists(t *testing.T, id string) bool {
	t.Helper()
	return value[bool](t, b.pool, `SELECT EXISTS (SELECT FROM app.invoice WHERE id = $1)`, id)
}

// txWork is work in a transaction, on the rows of app.invoice.
type txWork = func(ctx context.Context, tx pgx.Tx, rows fencepost.TableTx[Invoice]) error

// inside runs a function in each kind of transaction that a table can be used in, over the resource invoice-1.
func inside(t *testing.T, b *bundle) map[string]func(txWork) error {
	t.Helper()
	locks := advisoryTx(t, b.pool, &fencepost.Options{Namespace: b.opts.Namespace + "-locks"})
	onLocks, err := fencepost.NewAdvisoryTable[Invoice](t.Context(), locks, invoiceSpec())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := onLocks.Resource(fencepost.Key{"1"}); err != nil || got != "invoice-1" {
		t.Errorf("row 1 belongs to %q, %v", got, err)
	}
	wantErr(t, second(onLocks.Resource(fencepost.Key{"1", "2"})), fencepost.ErrInvalid)
	ours := func(work txWork) fencepost.TxFunc {
		return func(ctx context.Context, tx pgx.Tx) error { return work(ctx, tx, b.table.In(tx)) }
	}
	const resource = "invoice-1"
	keys := 0
	return map[string]func(txWork) error{
		"Do": func(work txWork) error { return b.store.Do(t.Context(), resource, ours(work)) },
		"Tx": func(work txWork) error {
			one, two := b.acquire(t, resource, nil), b.acquire(t, "invoice-2", nil)
			err := b.store.Tx(t.Context(), ours(work), two, one)
			return errors.Join(err, one.Release(t.Context()), two.Release(t.Context()))
		},
		"Once": func(work txWork) error {
			keys++
			_, err := fencepost.DoOnce(t.Context(), b.store, resource, strconv.Itoa(keys), nil,
				func(ctx context.Context, tx pgx.Tx) (int, error) { return 0, work(ctx, tx, b.table.In(tx)) })
			return err
		},
		"Join": func(work txWork) error {
			return b.store.Do(t.Context(), resource, func(ctx context.Context, _ pgx.Tx) error {
				return b.store.Join(ctx, resource, ours(work))
			})
		},
		"savepoint": func(work txWork) error {
			return b.store.Do(t.Context(), resource, func(ctx context.Context, tx pgx.Tx) error {
				return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return work(ctx, inner, b.table.In(inner)) })
			})
		},
		"AdvisoryTx": func(work txWork) error {
			return locks.Do(t.Context(), resource, func(ctx context.Context, tx pgx.Tx) error {
				return work(ctx, tx, onLocks.In(tx))
			})
		},
		"AdvisoryTx.Join": func(work txWork) error {
			return locks.Do(t.Context(), resource, func(ctx context.Context, _ pgx.Tx) error {
				return locks.Join(ctx, resource, func(ctx context.Context, tx pgx.Tx) error {
					return work(ctx, tx, onLocks.In(tx))
				})
			})
		},
	}
}

// A row ahead of its fence heals if the function returns the error: the function runs again, and its other writes are
// there once. Nobody gets ErrStale.
func TestARowAheadHealsInsideEachTransaction(t *testing.T) {
	t.Parallel()
	count := newTally()
	b := setupOutbox(t, fencepost.Options{Events: count.events()})
	ahead, events := 0, 0
	for kind, run := range inside(t, b) {
		for name := range rowWrites(t.Context(), fencepost.TableTx[Invoice]{}, "1") {
			ahead += 1000
			events++
			exec(t, b.pool, `INSERT INTO app.invoice (id, last_fencing_token) VALUES ('1', $1)
				ON CONFLICT (id) DO UPDATE SET last_fencing_token = $1`, ahead)
			calls := 0
			err := run(func(ctx context.Context, tx pgx.Tx, rows fencepost.TableTx[Invoice]) error {
				calls++
				if err := send(ctx, tx, name); err != nil {
					return err
				}
				return rowWrites(ctx, rows, "1")[name]()
			})
			if err != nil || calls != 2 || b.sent(t) != events {
				t.Errorf("%s in %s: %d calls, %d events of %d, %v", name, kind, calls, b.sent(t), events, err)
			}
		}
	}
	if n := count.stale.Load(); n != 0 {
		t.Errorf("%d times a current holder was called stale", n)
	}
}

// Several rows may be ahead, each further than the one before. If a row moves ahead again and again, the call ends
// after a bounded number of lifts.
func TestRowsAheadHealOneAfterTheOtherAndNotForEver(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 100 * id::int`)
	whole := tableBy(t, b.store, fencepost.Constant("all"))
	calls := 0
	err := b.store.Do(t.Context(), "all", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		for _, id := range []string{"1", "2", "3"} {
			if err := whole.In(tx).Update(ctx, fencepost.Key{id}, fencepost.Set{"value": "x"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || calls != 4 {
		t.Errorf("%d calls, %v", calls, err)
	}
	for kind, run := range inside(t, b) {
		calls = 0
		err := run(func(ctx context.Context, _ pgx.Tx, rows fencepost.TableTx[Invoice]) error {
			calls++
			exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = last_fencing_token + 1000 WHERE id = '1'`)
			return rows.Update(ctx, fencepost.Key{"1"}, fencepost.Set{"value": "y"})
		})
		if wantErr(t, err, fencepost.ErrTokenRegressed); calls < 2 || calls > 10 {
			t.Errorf("%s: %d calls", kind, calls)
		}
	}
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 9223372036854775807 WHERE id = '1'`)
	for kind, run := range inside(t, b) {
		err := run(func(ctx context.Context, _ pgx.Tx, rows fencepost.TableTx[Invoice]) error {
			return rows.Update(ctx, fencepost.Key{"1"}, fencepost.Set{"value": "y"})
		})
		if wantErr(t, err, fencepost.ErrTokenRegressed); errors.Is(err, fencepost.ErrStale) {
			t.Errorf("%s: a current holder was called stale: %v", kind, err)
		}
	}
}

// tableBy declares app.invoice with another rule.
func tableBy(t *testing.T, s *fencepost.Store, rule fencepost.ResourceRule) *fencepost.Table[Invoice] {
	t.Helper()
	spec := invoiceSpec()
	spec.Resource = rule
	invoices, err := fencepost.NewTable[Invoice](t.Context(), s, spec)
	if err != nil {
		t.Fatal(err)
	}
	return invoices
}

// If the function does not return the error, nothing is lifted and nothing runs again. In a Join, the outer function
// gets the error.
func TestARowAheadIsToldToAFunctionThatGoesOn(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 100 WHERE id = '1'`)
	calls := 0
	var l *fencepost.Lease
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		l, _ = fencepost.FromContext(ctx)
		err := b.store.Join(ctx, "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			if err := send(ctx, tx, "undone"); err != nil {
				return err
			}
			return b.table.In(tx).Update(ctx, fencepost.Key{"1"}, fencepost.Set{"value": "x"})
		})
		var stale *fencepost.StaleError
		if !errors.As(err, &stale) || !stale.Row || stale.Current != 100 || stale.Token != l.Token() {
			t.Errorf("Join told %v", err)
		}
		return send(ctx, tx, "kept")
	})
	if err != nil || calls != 1 || b.sent(t) != 1 || l.Token() != 1 {
		t.Errorf("%d calls, %d events, token %d, %v", calls, b.sent(t), l.Token(), err)
	}
	if r := b.read(t, "1"); r.Value != "0" {
		t.Errorf("the row is %+v", r)
	}
}

// rowCall is a call that is told an outcome.
type rowCall struct {
	call func(ctx context.Context, rows fencepost.TableTx[Invoice]) error
	want error
}

// told has calls with an outcome error. Row 2 is ahead of its fence, row 3 takes no update, and row 9 is missing.
func told() map[string]rowCall {
	set, why := fencepost.Set{"value": "x"}, errors.New("no")
	key := func(id string) fencepost.Key { return fencepost.Key{id} }
	type rows = fencepost.TableTx[Invoice]
	return map[string]rowCall{
		"get": {func(ctx context.Context, r rows) error {
			return second(r.Get(ctx, key("9")))
		}, fencepost.ErrNotFound},
		"update": {func(ctx context.Context, r rows) error {
			return r.Update(ctx, key("9"), set)
		}, fencepost.ErrNotFound},
		"stamp": {func(ctx context.Context, r rows) error {
			return second(r.Stamp(ctx, key("9")))
		}, fencepost.ErrNotFound},
		"delete": {func(ctx context.Context, r rows) error {
			return r.Delete(ctx, key("9"))
		}, fencepost.ErrNotFound},
		"insert": {func(ctx context.Context, r rows) error {
			return r.Insert(ctx, key("1"), set)
		}, fencepost.ErrExists},
		"stale": {func(ctx context.Context, r rows) error {
			return r.Update(ctx, key("2"), set)
		}, fencepost.ErrStale},
		"stale delete": {func(ctx context.Context, r rows) error {
			return r.Delete(ctx, key("2"))
		}, fencepost.ErrStale},
		"refused": {func(ctx context.Context, r rows) error {
			return r.Update(ctx, key("3"), set)
		}, fencepost.ErrRefused},
		"no columns": {func(ctx context.Context, r rows) error {
			return r.Update(ctx, key("1"), nil)
		}, fencepost.ErrInvalid},
		"other resource": {func(ctx context.Context, r rows) error {
			return r.Update(ctx, key("8"), set)
		}, fencepost.ErrInvalid},
		"modify": {func(ctx context.Context, r rows) error {
			return r.Modify(ctx, key("1"), func(*Invoice) error { return why })
		}, why},
		"modify nothing": {func(ctx context.Context, r rows) error {
			return r.Modify(ctx, key("1"), nil)
		}, fencepost.ErrInvalid},
		"partial batch": {func(ctx context.Context, r rows) error {
			return r.UpdateBatch(ctx, []fencepost.Change{{Key: key("2"), Set: set}}, &fencepost.BatchOptions{Partial: true})
		}, fencepost.ErrStale},
		"batch without columns": {func(ctx context.Context, r rows) error {
			return r.UpdateBatch(ctx, []fencepost.Change{{Key: key("2")}}, nil)
		}, fencepost.ErrInvalid},
		"batch of two resources": {func(ctx context.Context, r rows) error {
			return second(r.UpsertBatch(ctx, []fencepost.Change{{Key: key("1"), Set: set}, {Key: key("2"), Set: set}}, nil))
		}, fencepost.ErrInvalid},
	}
}

// An outcome error leaves the transaction usable: what follows it is committed.
func TestAToldOutcomeLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	exec(t, b.pool, `
		UPDATE app.invoice SET last_fencing_token = 100 WHERE id = '2';
		CREATE FUNCTION app.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER no BEFORE UPDATE ON app.invoice FOR EACH ROW WHEN (OLD.id = '3') EXECUTE FUNCTION app.no()`)
	for name, c := range told() {
		leases, err := b.store.AcquireAll(t.Context(), []string{"invoice-1", "invoice-2", "invoice-3", "invoice-9"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := b.sent(t)
		err = b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			wantErr(t, c.call(ctx, b.table.In(tx)), c.want)
			return send(ctx, tx, name)
		}, leases...)
		if err != nil || b.sent(t) != before+1 {
			t.Errorf("%s: the transaction could not be used: %v", name, err)
		}
		for _, l := range leases {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// After an error for which PostgreSQL, or the batch, aborts the transaction, nothing commits, even if the function
// ignores the error. With a savepoint before it the transaction goes on.
func TestAnErrorOfTheServerAbortsTheTransaction(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	exec(t, b.pool, `
		ALTER TABLE app.invoice ADD CONSTRAINT few CHECK (value <> 'bad');
		ALTER TABLE app.invoice ADD other text UNIQUE DEFAULT NULL;
		UPDATE app.invoice SET other = 'taken' WHERE id = '3';
		CREATE FUNCTION app.keep() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN NEW.last_fencing_token := OLD.last_fencing_token; RETURN NEW; END $$;
		CREATE TRIGGER keep BEFORE UPDATE ON app.invoice FOR EACH ROW WHEN (OLD.id = '2') EXECUTE FUNCTION app.keep()`)
	b.table = table(t, b.store)
	type rows = fencepost.TableTx[Invoice]
	key := func(id string) fencepost.Key { return fencepost.Key{id} }
	failures := map[string]func(ctx context.Context, r rows) error{
		"check": func(ctx context.Context, r rows) error { return r.Update(ctx, key("1"), fencepost.Set{"value": "bad"}) },
		"unique": func(ctx context.Context, r rows) error {
			return r.Insert(ctx, key("9"), fencepost.Set{"other": "taken"})
		},
		"stamp": func(ctx context.Context, r rows) error { return r.Update(ctx, key("2"), fencepost.Set{"value": "x"}) },
		"batch": func(ctx context.Context, r rows) error {
			return r.UpdateBatch(ctx, []fencepost.Change{{Key: key("9"), Set: fencepost.Set{"value": "x"}}}, nil)
		},
	}
	for name, fail := range failures {
		leases, err := b.store.AcquireAll(t.Context(), []string{"invoice-1", "invoice-2", "invoice-9"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			if err := send(ctx, tx, name); err != nil {
				return err
			}
			if err := fail(ctx, b.table.In(tx)); err == nil {
				t.Errorf("%s: no error", name)
			}
			return nil
		}, leases...)
		if wantErr(t, err, pgx.ErrTxCommitRollback); b.sent(t) != 0 {
			t.Errorf("%s: something was committed", name)
		}
		err = b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return fail(ctx, b.table.In(inner)) })
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			return errors.Join(send(ctx, tx, name), b.table.In(tx).Update(ctx, key("1"), fencepost.Set{"value": name}))
		}, leases...)
		if err != nil || b.sent(t) != 1 || b.read(t, "1").Value != name {
			t.Errorf("%s, before a savepoint: %v", name, err)
		}
		exec(t, b.pool, `TRUNCATE app.outbox`)
		for _, l := range leases {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	var server *pgconn.PgError
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		return failures["check"](ctx, b.table.In(tx))
	})
	if !errors.As(err, &server) || server.Code != "23514" {
		t.Errorf("a constraint: %v", err)
	}
}

// A tx that the table's store did not hand out, or that has ended, is ErrInvalid, and a lease that is over is ErrLost.
// Nothing is sent.
func TestTableInRefusesBeforeAnyTraffic(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	pool, trips := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices, ctx := table(t, store), t.Context()
	refused := func(what string, tx pgx.Tx, want error) {
		t.Helper()
		before := trips.Load()
		for name, call := range everyRow(ctx, invoices.In(tx), "1") {
			if err := call(); !errors.Is(err, want) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
		if n := trips.Load() - before; n != 0 {
			t.Errorf("%s: %d round trips", what, n)
		}
	}
	refused("nil", nil, fencepost.ErrInvalid)
	plain, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	refused("a transaction of the pool's", plain, fencepost.ErrInvalid)
	if err := plain.Rollback(ctx); err != nil {
		t.Error(err)
	}
	l := acquire(t, store, "invoice-1", nil)
	var leaked, inner pgx.Tx
	err = store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		leaked = tx
		var err error
		if inner, err = tx.Begin(ctx); err != nil {
			return err
		}
		if err := inner.Commit(ctx); err != nil {
			return err
		}
		refused("a savepoint that has ended", inner, fencepost.ErrInvalid)
		return nil
	}, l)
	if err != nil {
		t.Error(err)
	}
	refused("a transaction that is over", leaked, fencepost.ErrInvalid)
	refused("its savepoint", inner, fencepost.ErrInvalid)
	err = store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `COMMIT`)
		refused("one that the function has ended", tx, fencepost.ErrInvalid)
		return err
	}, l)
	wantErr(t, err, fencepost.ErrOutcomeUnknown)
	err = b.another(t).Do(ctx, "invoice-2", func(_ context.Context, tx pgx.Tx) error {
		refused("another store's", tx, fencepost.ErrInvalid)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		refused("a lease that is over", tx, fencepost.ErrLost)
		return nil
	}, l)
	wantErr(t, err, fencepost.ErrLost)
}

// A call that is applied costs one round trip, and Modify two. A call that is refused costs one more.
func TestRoundTripsInsideATransaction(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	pool, trips := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	invoices := table(t, store)
	one, nine := acquire(t, store, "invoice-1", nil), acquire(t, store, "invoice-9", nil)
	err = store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		for _, step := range []struct {
			id, method string
			trips      int64
		}{
			{"1", "stamp", 1},
			{"1", "update", 1},
			{"1", "upsert", 1},
			{"1", "modify", 2},
			{"1", "delete", 1},
			{"9", "stamp", 2},
			{"9", "update", 2},
			{"9", "delete", 2},
			{"9", "modify", 2},
			{"9", "upsert", 1},
		} {
			call := rowWrites(ctx, invoices.In(tx), step.id)[step.method]
			_ = call() // prepares the statements
			if step.method == "delete" && step.id == "1" {
				if err := invoices.In(tx).Insert(ctx, fencepost.Key{"1"}, nil); err != nil {
					return err
				}
			}
			before := trips.Load()
			_ = call()
			if n := trips.Load() - before; n != step.trips {
				t.Errorf("%s of %s: %d round trips, want %d", step.method, step.id, n, step.trips)
			}
		}
		return nil
	}, one, nine)
	if err != nil {
		t.Error(err)
	}
}

// Goroutines that share a lease and modify a row in their own transactions lose nothing, though the row was ahead.
func TestModifyInsideTransactionsLosesNothing(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	exec(t, b.pool, `UPDATE app.invoice SET last_fencing_token = 500 WHERE id = '1'`)
	l := b.acquire(t, "invoice-1", nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				err := b.table.In(tx).Modify(ctx, fencepost.Key{"1"}, func(row *Invoice) error { row.Value += "+"; return nil })
				return errors.Join(err, send(ctx, tx, "added"))
			}, l)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if r := b.read(t, "1"); r.Value != "0++++++++" || b.sent(t) != 8 {
		t.Errorf("the row is %+v, %d events", r, b.sent(t))
	}
}

// The control: In refuses this, and SQL by hand loses data. A write without a stamp leaves the row open to a lower
// token.
func TestControlSQLByHandLeavesTheRowUnstamped(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	old := b.acquire(t, "invoice-1", nil)
	if err := old.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	app := fence.Table{Schema: "app", Name: "invoice", Key: []string{"id"}}
	late := func() error { // a program that knows bare tokens alone, and one that is overtaken
		return fence.Update(t.Context(), b.pool, app, old.Token(), fencepost.Key{"1"}, fencepost.Set{"value": "late"})
	}
	if err := b.store.Do(t.Context(), "invoice-1", setValue("by hand")); err != nil {
		t.Fatal(err)
	}
	if err := late(); err != nil || b.read(t, "1").Value != "late" {
		t.Fatalf("the control shows nothing: %v", err)
	}
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		return b.table.In(tx).Update(ctx, fencepost.Key{"1"}, fencepost.Set{"value": "stamped"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if wantErr(t, late(), fencepost.ErrStale); b.read(t, "1").Value != "stamped" {
		t.Error("the stamped write was lost")
	}
}

// A protected table accepts the writes that a transaction makes through In.
func TestTableInPassesTheProtection(t *testing.T) {
	t.Parallel()
	b := setupOutbox(t, fencepost.Options{})
	exec(t, b.pool, `SELECT fencepost.protect('app.invoice', $1, 'invoice-', '{id}')`, b.opts.Namespace)
	for name := range rowWrites(t.Context(), fencepost.TableTx[Invoice]{}, "1") {
		err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			return rowWrites(ctx, b.table.In(tx), "1")[name]()
		})
		if name == "delete" {
			err = errors.Join(err, b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
				return b.table.In(tx).Insert(ctx, fencepost.Key{"1"}, nil)
			}))
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
