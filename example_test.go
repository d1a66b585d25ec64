package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

// shop is what the examples work with: a store, and the table app.invoice with one row, 2026-11, which is open.
type shop struct {
	pool  *pgxpool.Pool
	rdb   *redis.Client
	store *fencepost.Store
}

// openShop connects to the servers of DATABASE_URL and REDIS_URL. An example cannot return an error.
func openShop(ctx context.Context) *shop {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	address, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	check(err)
	s := &shop{pool: pool, rdb: redis.NewClient(address)}
	_, err = pool.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS app;
		CREATE TABLE IF NOT EXISTS app.invoice (id text PRIMARY KEY, value text NOT NULL)`)
	check(err)
	check(migrateShop(ctx, pool))
	_, err = pool.Exec(ctx, `TRUNCATE app.invoice; INSERT INTO app.invoice VALUES ('2026-11', 'open')`)
	check(err)
	s.store, err = fencepost.New(pool, s.rdb, &fencepost.Options{Namespace: "billing"})
	check(err)
	return s
}

func (s *shop) close() {
	_ = s.rdb.Close()
	s.pool.Close()
}

// print prints the invoices.
func (s *shop) print(ctx context.Context) {
	rows, err := s.pool.Query(ctx, `SELECT id || ': ' || value FROM app.invoice ORDER BY id`)
	check(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(err)
	for _, line := range lines {
		fmt.Println(line)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Bill is a row of app.invoice.
type Bill struct {
	ID    string
	Value string
}

func (s *shop) bills(ctx context.Context) *fencepost.Table[Bill] {
	bills, err := fencepost.NewTable[Bill](ctx, s.store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"},
		Resource: fencepost.PerRow("invoice:"),
	})
	check(err)
	return bills
}

// migrateShop runs fencepost's migrations, and one that gives app.invoice its token column.
func migrateShop(ctx context.Context, pool *pgxpool.Pool) error {
	column, err := migrations.TokenColumn(1000, migrations.Table{Schema: "app", Name: "invoice"})
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	_, err = migrations.Up(ctx, db, &migrations.Options{Also: []*goose.Migration{column}})
	return err
}

// Do is the whole of it: lease, claim, guarded transaction, release.
func ExampleStore_Do() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	err := s.store.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid' WHERE id = '2026-11'`)
		return err
	})
	switch {
	case err == nil: // committed
	case errors.Is(err, fencepost.ErrOutcomeUnknown):
		// the connection ended at COMMIT: look before you write again
	case errors.Is(err, fencepost.ErrStale), errors.Is(err, fencepost.ErrLost):
		// another worker has taken over: nothing was written
	}
	fmt.Println(err)
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: paid
}

// A row and an event in an outbox are committed together, or neither is. In stamps the row, compares its token, and
// tells the outcomes apart; beside it the transaction takes any SQL.
func ExampleTable_In() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()
	_, err := s.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS app.outbox (event text NOT NULL); TRUNCATE app.outbox`)
	check(err)
	bills := s.bills(ctx)

	key := fencepost.Key{"2026-11"}
	resource, err := bills.Resource(key)
	check(err)
	err = s.store.Do(ctx, resource, func(ctx context.Context, tx pgx.Tx) error {
		if err := bills.In(tx).Update(ctx, key, fencepost.Set{"value": "paid"}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO app.outbox (event) VALUES ('invoice 2026-11 was paid')`)
		return err
	})
	fmt.Println(err)

	// A missing row is ErrNotFound, and the transaction goes on.
	key = fencepost.Key{"2026-12"}
	err = s.store.Do(ctx, "invoice:2026-12", func(ctx context.Context, tx pgx.Tx) error {
		err := bills.In(tx).Update(ctx, key, fencepost.Set{"value": "paid"})
		if errors.Is(err, fencepost.ErrNotFound) {
			return bills.In(tx).Insert(ctx, key, fencepost.Set{"value": "late"})
		}
		return err
	})
	fmt.Println(err)

	s.print(ctx)
	var event string
	check(s.pool.QueryRow(ctx, `SELECT event FROM app.outbox`).Scan(&event))
	fmt.Println(event)
	// Output:
	// <nil>
	// <nil>
	// 2026-11: paid
	// 2026-12: late
	// invoice 2026-11 was paid
}

// One lease may guard several transactions, one after the other. A lease that is overtaken can write no more.
func ExampleStore_Tx() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	lease, err := s.store.Acquire(ctx, "invoice:2026-11", nil)
	check(err)
	set := func(value string) error {
		return s.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '2026-11'`, value)
			return err
		}, lease)
	}
	fmt.Println(set("sent"))

	// Somebody claims a higher token, as a worker does that takes over after a pause of this one.
	next := lease.Claim()
	next.Token++
	check(s.claim(ctx, next))
	err = set("paid")
	fmt.Println(errors.Is(err, fencepost.ErrStale))
	fmt.Println(errors.Is(lease.Release(ctx), fencepost.ErrLost))
	s.print(ctx)
	// Output:
	// <nil>
	// true
	// true
	// 2026-11: sent
}

// claim claims a token for a caller that has no lease.
func (s *shop) claim(ctx context.Context, c fencepost.Claim) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return fence.Raise(ctx, conn.Conn(), c, nil)
}

// Rows are read and written by key, under a lease that is held over several steps.
func ExampleTable() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	bills := s.bills(ctx)
	lease, err := s.store.Acquire(ctx, "invoice:2026-11", nil)
	check(err)
	defer func() { _ = lease.Release(ctx) }()

	bill, err := bills.Get(ctx, lease, fencepost.Key{"2026-11"})
	check(err)
	err = bills.Update(ctx, lease, fencepost.Key{"2026-11"}, fencepost.Set{"value": bill.Value + ", sent"})
	fmt.Println(err)
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: open, sent
}

// Modify locks the row from the read to the commit, so that no other write comes in between.
func ExampleTable_Modify() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	bills := s.bills(ctx)
	lease, err := s.store.Acquire(ctx, "invoice:2026-11", nil)
	check(err)
	defer func() { _ = lease.Release(ctx) }()

	err = bills.Modify(ctx, lease, fencepost.Key{"2026-11"}, func(bill *Bill) error {
		bill.Value += ", sent"
		return nil
	})
	fmt.Println(err)
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: open, sent
}

// A batch is written whole or not at all. The table gives all of its rows one resource.
func ExampleTable_UpsertBatch() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	bills, err := fencepost.NewTable[Bill](ctx, s.store, fencepost.TableSpec{
		Schema: "app", Name: "invoice", Key: []string{"id"},
		Resource: fencepost.Constant("invoices"),
	})
	check(err)
	lease, err := s.store.Acquire(ctx, "invoices", nil)
	check(err)
	defer func() { _ = lease.Release(ctx) }()

	inserted, err := bills.UpsertBatch(ctx, lease, []fencepost.Change{
		{Key: fencepost.Key{"2026-11"}, Set: fencepost.Set{"value": "paid"}},
		{Key: fencepost.Key{"2026-12"}, Set: fencepost.Set{"value": "open"}},
	}, nil)
	fmt.Println(inserted, err)
	s.print(ctx)
	// Output:
	// 1 <nil>
	// 2026-11: paid
	// 2026-12: open
}

// Once does its work at most once for each key. A repeated request gets the first result.
func ExampleOnce() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	lease, err := s.store.Acquire(ctx, "invoice:2026-11", nil)
	check(err)
	defer func() { _ = lease.Release(ctx) }()

	type payment struct{ Cents int }
	key := "payment-" + lease.Token().String() // yours comes with the request
	for range 2 {
		got, err := fencepost.Once(ctx, lease, key, payment{4200}, func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = value || ', paid' WHERE id = '2026-11'`)
			return "receipt 1", err
		})
		check(err)
		fmt.Println(got.Value, got.Recorded)
	}
	s.print(ctx)
	// Output:
	// receipt 1 false
	// receipt 1 true
	// 2026-11: open, paid
}

// Every caller acquires several resources in the same order, so no deadlock can occur. Tx guards them all.
func ExampleStore_AcquireAll() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	leases, err := s.store.AcquireAll(ctx, []string{"invoice:2026-11", "account:7"}, nil)
	check(err)
	err = s.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid from account 7' WHERE id = '2026-11'`)
		return err
	}, leases...)
	fmt.Println(err)
	fmt.Println(fencepost.ReleaseAll(ctx, leases...))
	s.print(ctx)
	// Output:
	// <nil>
	// <nil>
	// 2026-11: paid from account 7
}

// A worker that stops on SIGTERM between two steps, or once its lease is lost. The lease is released either way.
// With several workers wait for all of them before the pool and the client are closed.
func ExampleStore_With() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	write := func(value string) fencepost.TxFunc {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '2026-11'`, value)
			return err
		}
	}

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := s.store.With(ctx, "invoice:2026-11", nil, func(ctx context.Context, lease *fencepost.Lease) error {
		for _, step := range []string{"sent", "paid"} {
			if ctx.Err() != nil {
				return context.Cause(ctx) // a signal, or the loss of the lease
			}
			if err := s.store.Tx(ctx, write(step), lease); err != nil {
				return err
			}
		}
		return nil
	})
	fmt.Println(err)
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: paid
}

// Code that has only a claim value, in another process or beside an ORM, guards its own transaction.
func ExampleLease_Claim() {
	ctx := context.Background()
	s := openShop(ctx)
	defer s.close()

	lease, err := s.store.Acquire(ctx, "invoice:2026-11", nil)
	check(err)
	defer func() { _ = lease.Release(ctx) }()

	write := func(tx pgx.Tx, claim fence.Claim) error {
		if err := fence.Enter(ctx, tx, claim); err != nil {
			return err // *fencepost.StaleError once another worker has claimed; tx is aborted
		}
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = 'paid' WHERE id = '2026-11'`)
		return err
	}
	fmt.Println(pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return write(tx, lease.Claim()) }))
	s.print(ctx)
	// Output:
	// <nil>
	// 2026-11: paid
}
