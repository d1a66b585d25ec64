// Rows continues where quickstart ends: it reads and writes the same table by key, together with an outbox.
//
//	DATABASE_URL=postgres://… REDIS_URL=redis://… go run ./examples/rows
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL")); err != nil {
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
	invoices, err := declare(ctx, store)
	if err != nil {
		return err
	}
	return errors.Join(pay(ctx, store, invoices, "2026-11"), remind(ctx, store, invoices, "2026-11"))
}

// prepare makes the tables. Quickstart may have made the first of them.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(ctx, db, nil); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS invoice (id text PRIMARY KEY, status text NOT NULL);
		INSERT INTO invoice (id, status) VALUES ('2026-11', 'open') ON CONFLICT DO NOTHING;
		ALTER TABLE invoice ADD COLUMN IF NOT EXISTS
			last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0);
		CREATE TABLE IF NOT EXISTS outbox (event text NOT NULL)`)
	return err
}

// Invoice is a row of the table invoice. Each field is a column, by its name or by a `db` tag.
type Invoice struct {
	ID     string
	Status string
}

func declare(ctx context.Context, store *fencepost.Store) (*fencepost.Table[Invoice], error) {
	return fencepost.NewTable[Invoice](ctx, store, fencepost.TableSpec{
		Schema: "public", Name: "invoice", Key: []string{"id"},
		Resource: fencepost.PerRow("invoice:"), // the row 2026-11 belongs to the resource invoice:2026-11
	})
}

// pay writes the row and its event. Both are committed, or neither.
func pay(ctx context.Context, store *fencepost.Store, invoices *fencepost.Table[Invoice], id string) error {
	return store.Do(ctx, "invoice:"+id, func(ctx context.Context, tx pgx.Tx) error {
		err := invoices.In(tx).Update(ctx, fencepost.Key{id}, fencepost.Set{"status": "paid"})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO outbox (event) VALUES ($1)`, "invoice "+id+" was paid")
		return err
	})
}

// remind holds the lease from the read to the write. Each call is a transaction of its own.
func remind(ctx context.Context, store *fencepost.Store, invoices *fencepost.Table[Invoice], id string) error {
	return store.With(ctx, "invoice:"+id, nil, func(ctx context.Context, lease *fencepost.Lease) error {
		invoice, err := invoices.Get(ctx, lease, fencepost.Key{id})
		if err != nil || invoice.Status == "paid" {
			return err
		}
		fmt.Println("please pay invoice", id) // an effect outside PostgreSQL: the fence does not cover it
		return invoices.Update(ctx, lease, fencepost.Key{id}, fencepost.Set{"status": "reminded"})
	})
}
