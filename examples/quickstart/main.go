// Quickstart pays an invoice under a lease. An empty database is enough.
//
//	DATABASE_URL=postgres://… REDIS_URL=redis://… go run ./examples/quickstart
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/migrations"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, databaseURL, redisURL string) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	address, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(address)
	defer func() { _ = rdb.Close() }()
	if err := prepare(ctx, pool); err != nil {
		return err
	}

	store, err := fencepost.New(pool, rdb, &fencepost.Options{Namespace: "billing"})
	if err != nil {
		return err
	}
	// Do waits for other workers, and for Redis, until its context ends.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Lease, fencing token, guarded transaction, commit, release: all of it is Do.
	err = store.Do(ctx, "invoice:2026-11", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE invoice SET status = 'paid' WHERE id = '2026-11'`)
		return err
	})
	switch {
	case err == nil:
		fmt.Println("paid") // committed
	case errors.Is(err, fencepost.ErrOutcomeUnknown):
		fmt.Println("the connection ended at COMMIT: look before you write again")
	case errors.Is(err, fencepost.ErrStale), errors.Is(err, fencepost.ErrLost):
		fmt.Println("another worker has taken over: nothing was written")
	}
	return err
}

// prepare is run once per database. Any number of processes may run it at once.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return err
	}
	// A table of your own. Do asks nothing of it.
	_, err := pool.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS invoice (id text PRIMARY KEY, status text NOT NULL);
		INSERT INTO invoice VALUES ('2026-11', 'open') ON CONFLICT DO NOTHING`)
	return err
}
