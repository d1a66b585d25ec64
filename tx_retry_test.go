package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

var strict = []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable}

// C20: the row was changed after the transaction's snapshot. The whole transaction runs again with the same token, and
// the function starts from the beginning.
func TestCase20_ASerializationFailureRunsTheWholeAgain(t *testing.T) {
	t.Parallel()
	for _, isolation := range strict {
		b := setup(t, fencepost.Options{})
		l := b.acquire(t, "invoice-1", nil)
		calls := 0
		err := b.store.TxWith(
			t.Context(),
			&fencepost.TxOptions{Isolation: isolation},
			func(ctx context.Context, tx pgx.Tx) error {
				var value string
				if err := tx.QueryRow(ctx, `SELECT value FROM app.invoice WHERE id = '1'`).Scan(&value); err != nil {
					return err
				}
				if calls++; calls == 1 {
					exec(t, b.pool, `UPDATE app.invoice SET value = 'beside' WHERE id = '1'`)
				}
				return setValue(value+" and more")(ctx, tx)
			},
			l,
		)
		if r := b.read(t, "1"); err != nil || calls != 2 || r.Value != "beside and more" {
			t.Errorf("%s: %d calls, %v, and the row is %+v", isolation, calls, err, r)
		}
	}
}

// C20: a failure at COMMIT (write skew) is handled like any other.
func TestCase20_AFailureAtCommitRunsTheWholeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l, other := b.acquire(t, "invoice-1", nil), b.acquire(t, "invoice-2", nil)
	serializable := &fencepost.TxOptions{Isolation: pgx.Serializable}
	calls := 0
	err := b.store.TxWith(t.Context(), serializable, func(ctx context.Context, tx pgx.Tx) error {
		calls++
		if err := copyValue(ctx, tx, "2", "1"); err != nil || calls > 1 {
			return err
		}
		// Each of the two reads what the other writes. One of them has to give way, and the other has committed.
		return b.store.TxWith(ctx, serializable, func(ctx context.Context, tx pgx.Tx) error {
			return copyValue(ctx, tx, "1", "2")
		}, other)
	}, l)
	if err != nil || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func copyValue(ctx context.Context, tx pgx.Tx, from, to string) error {
	var value string
	if err := tx.QueryRow(ctx, `SELECT value FROM app.invoice WHERE id = $1`, from).Scan(&value); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $2 WHERE id = $1`, to, value+"+")
	return err
}

// C20: of an older and a newer token, the older becomes stale and the newer wins, whichever began first.
func TestCase20_TheOlderTokenIsStaleAndTheNewerWins(t *testing.T) {
	t.Parallel()
	for _, isolation := range strict {
		for _, inFlight := range []bool{false, true} {
			b := setup(t, fencepost.Options{})
			next, opts := b.another(t), &fencepost.TxOptions{Isolation: isolation}
			older := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
			b.forget(t, "invoice-1")
			var newer *fencepost.Lease
			if inFlight { // the newer claim waits for the older transaction, which commits
				newer = claimBehind(t, b, next, func(claiming func()) error {
					return b.store.TxWith(t.Context(), opts, func(ctx context.Context, tx pgx.Tx) error {
						claiming()
						return setValue("older, in time")(ctx, tx)
					}, older)
				})
			} else {
				newer = acquire(t, next, "invoice-1", nil)
			}
			wantStale(t, b.store.TxWith(t.Context(), opts, setValue("older"), older), older.Token(), newer.Token())
			if err := next.TxWith(t.Context(), opts, setValue("newer"), newer); err != nil || b.read(t, "1").Value != "newer" {
				t.Errorf("%s: the newer token: %v", isolation, err)
			}
		}
	}
}

// claimBehind runs an older transaction and, while it is open, acquires its resource again.
func claimBehind(t *testing.T, b *bundle, next *fencepost.Store, older func(claiming func()) error) *fencepost.Lease {
	t.Helper()
	got := make(chan *fencepost.Lease, 1)
	err := older(func() {
		go func() { got <- acquire(t, next, "invoice-1", nil) }()
		until(t, b.pool, `SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
			AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	})
	if err != nil {
		t.Errorf("the older transaction was there first: %v", err)
	}
	return <-got
}

// C20: a guard waited for the newer claim, under a snapshot older than that claim. The transaction runs again and is
// then stale.
func TestCase20_AGuardBehindANewerClaimIsStale(t *testing.T) {
	t.Parallel()
	for _, isolation := range append(strict, pgx.ReadCommitted) {
		b := setup(t, fencepost.Options{})
		older := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
		b.forget(t, "invoice-1")
		late := make(chan error, 1)
		newer := claimBehind(t, b, b.another(t), func(claiming func()) error {
			return b.store.Tx(t.Context(), func(context.Context, pgx.Tx) error {
				claiming()
				go func() {
					late <- b.store.TxWith(t.Context(), &fencepost.TxOptions{Isolation: isolation}, setValue("late"), older)
				}()
				until(t, b.pool, `SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
				return nil
			}, older)
		})
		wantStale(t, <-late, older.Token(), newer.Token())
	}
}

// If a row moves to another partition while a statement waits for it, the error is 40001, even under READ COMMITTED.
func TestARowThatMovedToAnotherPartitionRunsTheWholeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE TABLE app.part (id int, at int, value text NOT NULL) PARTITION BY LIST (at);
		CREATE TABLE app.part1 PARTITION OF app.part FOR VALUES IN (1);
		CREATE TABLE app.part2 PARTITION OF app.part FOR VALUES IN (2);
		INSERT INTO app.part VALUES (1, 1, '')`)
	l := b.acquire(t, "invoice-1", nil)
	calls := 0
	err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		if calls++; calls == 1 {
			moveWhileWaitedFor(t, b)
		}
		_, err := tx.Exec(ctx, `UPDATE app.part SET value = 'written' WHERE id = 1`)
		return err
	}, l)
	var value string
	if err := b.pool.QueryRow(t.Context(), `SELECT value FROM app.part`).Scan(&value); err != nil {
		t.Fatal(err)
	}
	if err != nil || calls != 2 || value != "written" {
		t.Errorf("%d calls, %v, and the row is %q", calls, err, value)
	}
}

// moveWhileWaitedFor moves the row in a transaction that commits once another transaction waits for it.
func moveWhileWaitedFor(t *testing.T, b *bundle) {
	t.Helper()
	mover, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mover.Exec(t.Context(), `UPDATE app.part SET at = 2 WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	go func() {
		until(t, b.pool, `SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted
			AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())`)
		if err := mover.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}()
}

// C20, I9: a transaction that PostgreSQL rolled back never returns nil. If the function ended the transaction itself,
// the error says so.
func TestCase20_NilIsNeverReturnedForWhatWasRolledBack(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	misuse := func(end func(ctx context.Context, tx pgx.Tx) error, overlook bool) fencepost.TxFunc {
		return func(ctx context.Context, tx pgx.Tx) error {
			if err := setValue("x")(ctx, tx); err != nil {
				return err
			}
			if err := end(ctx, tx); !overlook {
				return err
			}
			return nil
		}
	}
	sql := func(text string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, text)
			return err
		}
	}
	why := errors.New("the work failed")
	for name, c := range map[string]struct {
		fn   fencepost.TxFunc
		want error
	}{
		"swallowed": {misuse(sql(`SELECT 1/0`), true), pgx.ErrTxCommitRollback},
		"Commit": {
			misuse(func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, false),
			fencepost.ErrInvalid,
		},
		"Commit overlooked": {
			misuse(func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, true),
			fencepost.ErrInvalid,
		},
		"Rollback overlooked": {
			misuse(func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }, true),
			fencepost.ErrInvalid,
		},
		"ROLLBACK in SQL": {misuse(sql(`ROLLBACK`), true), fencepost.ErrOutcomeUnknown},
		"ROLLBACK, failed": {func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(sql(`ROLLBACK`)(ctx, tx), why)
		}, why},
	} {
		if err := b.store.Tx(t.Context(), c.fn, l); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if r := b.read(t, "1"); r.Value != "0" {
			t.Errorf("%s: the row is %+v", name, r)
		}
	}
	// If the function itself committed, its writes are there, and the error does not deny it.
	err := b.store.Tx(t.Context(), misuse(sql(`COMMIT`), true), l)
	if wantErr(t, err, fencepost.ErrOutcomeUnknown); b.read(t, "1").Value != "x" {
		t.Error("the control: COMMIT in SQL wrote nothing")
	}
	if n := b.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

// Savepoints may come and go after the guard: writes after a savepoint that is rolled back are undone, and the rest is
// guarded.
func TestSavepointsStandBelowTheGuard(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	why := errors.New("the part failed")
	newer := claimBehind(t, b, b.another(t), func(claiming func()) error {
		return b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			err := pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { return errors.Join(setValue("dropped")(ctx, part), why) })
			wantErr(t, err, why)
			b.forget(t, "invoice-1")
			claiming() // it has to wait: the guard stands
			return pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error { return setValue("kept")(ctx, part) })
		}, l)
	})
	if r := b.read(t, "1"); r.Value != "kept" || newer.Token() <= l.Token() {
		t.Errorf("the row is %+v", r)
	}
}

// The control: a guard inside a savepoint that is rolled back protects nothing. Between that guard and the write
// another holder claims and writes, and its write is lost.
func TestSavepointsControl_AGuardRolledBackProtectsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	older := b.acquire(t, "invoice-1", &fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true})
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		part, err := tx.Begin(t.Context())
		if err != nil {
			return err
		}
		if err := errors.Join(fence.Enter(t.Context(), part, older.Claim()), part.Rollback(t.Context())); err != nil {
			return err
		}
		b.forget(t, "invoice-1")
		newer := acquire(t, b.another(t), "invoice-1", nil) // nothing holds it up
		if err := writeGuarded(t.Context(), b, newer.Claim(), "newer"); err != nil {
			return err
		}
		return setValue("older")(t.Context(), tx)
	})
	if r := b.read(t, "1"); err != nil || r.Value != "older" {
		t.Errorf("the control lost nothing: %v, %+v", err, r)
	}
}

// C22: behind a pooler in transaction mode a lost reply is settled as well, whether it was lost between client and
// pooler or between pooler and server. In the latter case the pooler answers with an error of its own.
func TestCase22_ALostReplyIsSettledThroughAPooler(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	behind := proxyOf(t, b)
	pooler := testenv.PgBouncer(t, behind.URL(t, b.pool.Config().ConnString()), &services.PgBouncerOptions{PoolSize: 2})
	before := faults.NewProxy(t, hostOf(t, pooler.URL()))
	url := before.URL(t, pooler.URL())
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	s, err := fencepost.New(testenv.PoolOn(t, url+separator+"default_query_exec_mode=exec"), b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, s, "invoice-1", nil)
	for name, proxy := range map[string]*faults.Proxy{"before": before, "behind": behind} {
		dropped := proxy.DropNextReply(faults.Commit())
		err := s.Tx(t.Context(), setValue(name), l)
		<-dropped
		if r := b.read(t, "1"); err != nil || r.Value != name {
			t.Errorf("reply lost %s the pooler: %v, and the row is %+v", name, err, r)
		}
		dropped = proxy.DropNextRequest(faults.Commit())
		notCommitted(t, s.Tx(t.Context(), setValue("never"), l))
		<-dropped
		if r := b.read(t, "1"); r.Value != name {
			t.Errorf("request lost %s the pooler: the row is %+v", name, r)
		}
	}
}

func hostOf(t *testing.T, url string) string {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", config.Host, config.Port)
}

// If a function leaves its guarded transaction and goes on in another one, the error says so, and the writes in the
// other one do not commit, though a rival has claimed meanwhile. The control: the writes before that are there.
func TestInvariant3_AFunctionThatEndsItsTransactionWritesNothingAfterwards(t *testing.T) {
	t.Parallel()
	for _, end := range [][]string{{`COMMIT AND CHAIN`}, {`COMMIT`, `BEGIN`}, {`ROLLBACK AND CHAIN`}} {
		t.Run(strings.Join(end, " "), func(t *testing.T) {
			t.Parallel()
			b := setup(t, fencepost.Options{})
			l := b.acquire(t, "invoice-1", nil)
			err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				for _, sql := range slices.Concat([]string{`UPDATE app.invoice SET value = 'before'`}, end) {
					if _, err := tx.Exec(ctx, sql); err != nil {
						return err
					}
				}
				exec(t, b.pool, `SELECT fencepost.claim($1, $2, gen_random_uuid())`, l.Claim().Resource, int64(l.Token())+1)
				_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'overtaken'`)
				return err
			}, l)
			wantErr(t, err, fencepost.ErrOutcomeUnknown)
			want := "before"
			if strings.HasPrefix(end[0], "ROLLBACK") {
				want = "0"
			}
			if got := b.read(t, "1").Value; got != want {
				t.Errorf("value %q, want %q", got, want)
			}
		})
	}
}

// Inside a Tx the methods of a table are refused before anything is sent.
func TestATablesMethodsAreRefusedInsideATx(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	key, set := fencepost.Key{"1"}, fencepost.Set{"value": "x"}
	before := b.read(t, "1")
	err := b.store.Tx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
		_, read := b.table.Get(ctx, l, key)
		_, load := b.table.Load(ctx, l, []string{"id", "value"}, pgx.CopyFromRows([][]any{{"1", "x"}}), nil)
		for _, err := range []error{
			read, load, b.table.Update(ctx, l, key, set), b.table.Delete(ctx, l, key),
			b.table.Modify(ctx, l, key, func(*Invoice) error { return nil }),
			b.table.UpdateBatch(ctx, l, []fencepost.Change{{Key: key, Set: set}}, nil),
		} {
			wantErr(t, err, fencepost.ErrInvalid)
		}
		return nil
	}, l)
	if err != nil {
		t.Error(err)
	}
	if after := b.read(t, "1"); after != before {
		t.Errorf("the row went from %+v to %+v", before, after)
	}
}
