// Command gorm shows GORM under a fence. The first statement of a GORM transaction is fencepost.enter, and everything
// that GORM then writes in it is under the worker's claim. Once another worker has overtaken it, PostgreSQL refuses the
// write. The SQLSTATE in GORM's error identifies the refusal.
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
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/migrations"
)

// Account is a row of shop.account. It leaves out the token column, because the guard checks the fence, not the row.
type Account struct {
	ID      int64 `gorm:"primaryKey"`
	Balance int64
}

// TableName returns the table's name with its schema, as GORM expects it.
func (Account) TableName() string { return "shop.account" }

func main() {
	say := func(line string) { fmt.Println(line) }
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Getenv("REDIS_URL"), say); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is the whole story. It returns an error if PostgreSQL let the overtaken worker write.
func run(ctx context.Context, databaseURL, redisURL string, say func(line string)) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	conn := stdlib.OpenDBFromPool(pool)
	defer func() { _ = conn.Close() }()
	if err := prepare(ctx, conn); err != nil {
		return err
	}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: conn}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}
	store, closeRedis, err := open(pool, redisURL)
	if err != nil {
		return err
	}
	defer closeRedis()

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
	if !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("the overtaken worker was not refused: %w", err)
	}
	say("first worker: refused as stale")
	return nil
}

// deposit adds to the account in GORM's own way.
func deposit(ctx context.Context, db *gorm.DB, claim fence.Claim, amount int64) error {
	return guarded(ctx, db, claim, func(tx *gorm.DB) error {
		return tx.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "id"}},
			DoUpdates: clause.Assignments(map[string]any{"balance": gorm.Expr("account.balance + excluded.balance")}),
		}).Create(&Account{ID: 1, Balance: amount}).Error
	})
}

// guarded runs fn in a GORM transaction under a claim. nil means committed. Do not call enter in a nested transaction:
// GORM makes that a savepoint, and its rollback would drop the guard.
func guarded(ctx context.Context, db *gorm.DB, claim fence.Claim, fn func(tx *gorm.DB) error) error {
	tx := db.WithContext(ctx).Begin()
	if tx.Error != nil {
		return tx.Error
	}
	defer tx.Rollback() // without effect once committed
	err := tx.Exec(`SELECT fencepost.enter(?, ?, ?)`, claim.Resource, int64(claim.Token), claim.Nonce.Hex()).Error
	if err != nil {
		// This is *fence.StaleError if the SQLSTATE in GORM's error is ZF001.
		return fence.GuardError(ctx, err)
	}
	if err := fn(tx); err != nil {
		return err
	}
	return fence.CommitError(ctx, tx.Commit().Error)
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

// open makes the store that grants the leases.
func open(pool *pgxpool.Pool, redisURL string) (*fencepost.Store, func(), error) {
	opts, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(opts)
	store, err := fencepost.New(pool, client, &fencepost.Options{Namespace: "examples"})
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return store, func() { _ = client.Close() }, nil
}
