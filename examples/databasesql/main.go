// Command databasesql shows database/sql under a fence. A worker takes a lease with fencepost and writes through
// database/sql, here with the driver lib/pq. The first statement of its transaction is the guard. Once another worker
// has overtaken it, PostgreSQL refuses its write.
//
//	DATABASE_URL=postgres://… REDIS_URL=redis://… go run .
//
// It creates the schemas fencepost and shop if they do not exist.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver "postgres"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

func main() {
	say := func(line string) { fmt.Println(line) }
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL"), say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the whole story. It returns an error if PostgreSQL let the overtaken worker write.
func run(ctx context.Context, databaseURL, redisURL string, say func(line string)) error {
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := prepare(ctx, db); err != nil {
		return err
	}
	store, closeBoth, err := open(ctx, databaseURL, redisURL)
	if err != nil {
		return err
	}
	defer closeBoth()

	first, err := store.Acquire(ctx, "account:1", nil)
	if err != nil {
		return err
	}
	claim := first.Claim()
	if err := deposit(ctx, db, claim, 10); err != nil {
		return err
	}
	say("first worker: deposited 10")

	// Its lease ends while a part of it is stuck in a call. Here the lease is released; in production it runs out while
	// the process is paused. The stuck part still has the claim.
	if err := first.Release(ctx); err != nil {
		return err
	}
	second, err := store.Acquire(ctx, "account:1", nil)
	if err != nil {
		return err
	}
	defer func() { _ = second.Release(ctx) }()
	if err := deposit(ctx, db, second.Claim(), 5); err != nil {
		return err
	}
	say("second worker: took over, deposited 5")

	// The stuck part of the first worker continues, and does not look at its lease.
	err = deposit(ctx, db, claim, 10)
	var stale *fence.StaleError
	if !errors.As(err, &stale) {
		return fmt.Errorf("the overtaken worker was not refused: %w", err)
	}
	say(fmt.Sprintf("first worker: refused, its token is behind by %d", stale.Current-stale.Token))
	return nil
}

// deposit adds to the account in a transaction of database/sql that begins with the guard. nil means
// committed; fence.ErrOutcomeUnknown means: look before you write again.
func deposit(ctx context.Context, db *sql.DB, claim fence.Claim, amount int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect once committed
	if err := fence.EnterSQL(ctx, tx, claim); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO shop.account AS a (id, balance) VALUES (1, $1)
		ON CONFLICT (id) DO UPDATE SET balance = a.balance + excluded.balance`, amount)
	if err != nil {
		return err
	}
	return fence.CommitError(ctx, tx.Commit())
}

// prepare does what a deployment's migrations do. The last statement protects the table: from then on no program writes
// account 1 without a claim of examples:account:1, and a trigger stamps the row's token.
func prepare(ctx context.Context, db *sql.DB) error {
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `
		CREATE SCHEMA IF NOT EXISTS shop;
		CREATE TABLE IF NOT EXISTS shop.account (
			id bigint PRIMARY KEY, balance bigint NOT NULL, last_fencing_token bigint NOT NULL DEFAULT 0);
		SELECT fencepost.protect('shop.account', 'examples', 'account:', '{id}')`)
	return err
}

// open makes the store that grants the leases. The store uses a pool of pgx; the application need not.
func open(ctx context.Context, databaseURL, redisURL string) (*fencepost.Store, func(), error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, nil, err
	}
	opts, err := redis.ParseURL(redisURL)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	client := redis.NewClient(opts)
	closeBoth := func() {
		_ = client.Close()
		pool.Close()
	}
	store, err := fencepost.New(pool, client, &fencepost.Options{Namespace: "examples"})
	if err != nil {
		closeBoth()
	}
	return store, closeBoth, err
}
