package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/library"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/migrations"
)

// cleanUpPatience bounds the removal of what a run has made on the servers.
const cleanUpPatience = time.Minute

// withServers runs fn on two databases and a key space of its own on the servers, and removes them.
func withServers(
	ctx context.Context,
	s *services.Services,
	fn func(context.Context, library.Servers) error,
) error {
	name := "fencepost-bench-" + strings.ToLower(rand.Text()[:12])
	return withDatabase(ctx, s.PostgresURL, name, func(pool *pgxpool.Pool) error {
		return withDatabase(ctx, s.PostgresURL, name+"-grown", func(grown *pgxpool.Pool) error {
			return withKeys(ctx, s.RedisURL, name, func(client *redis.Client) error {
				near := library.Servers{Pool: pool, Grown: grown, Redis: client, Name: name, Schema: "bench"}
				return withFar(ctx, near, s.RedisURL, fn)
			})
		})
	})
}

// withDatabase runs fn with a pool on a new, migrated database.
func withDatabase(ctx context.Context, address, name string, fn func(*pgxpool.Pool) error) (err error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return errors.New("the PostgreSQL address cannot be parsed") // the parser's words may hold a password
	}
	admin, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	quoted := pgx.Identifier{name}.Sanitize()
	defer func() {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
		defer cancel()
		_, dropped := admin.Exec(detached, `DROP DATABASE IF EXISTS `+quoted+` WITH (FORCE)`)
		err = errors.Join(err, dropped, admin.Close(detached))
	}()
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+quoted+` TEMPLATE template0`); err != nil {
		return fmt.Errorf("create a database: %w", err)
	}
	config.ConnConfig.Database = name
	pool, err := openPool(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrate(ctx, pool); err != nil {
		return err
	}
	return fn(pool)
}

// inDatabase returns the address with another database.
func inDatabase(address, name string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the PostgreSQL address cannot be parsed") // the parser's words may hold a password
	}
	u.Path = "/" + name
	return u.String(), nil
}

// openPool opens a pool with one connection for each worker: what is measured is not the wait for one.
func openPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	config.MaxConns, config.MinConns = library.Workers, library.Workers
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	return pool, nil
}

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	_, err := migrations.Up(ctx, db, nil)
	return errors.Join(err, db.Close())
}

// withKeys runs fn with a client and removes the keys that carry the name.
func withKeys(ctx context.Context, address, name string, fn func(*redis.Client) error) (err error) {
	opts, err := redis.ParseURL(address)
	if err != nil {
		return errors.New("the Redis address cannot be parsed") // as above
	}
	client := redis.NewClient(opts)
	defer func() {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
		defer cancel()
		err = errors.Join(err, removeKeys(detached, client, "*:"+name+"[-:]*"), client.Close())
	}()
	return fn(client)
}
