package testenv

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

const (
	poolSize     = 16 // enough for eight workers with two connections each
	poolPatience = 15 * time.Second
)

// Database returns the address of a new database with fencepost's migrations in
// it. It is dropped when the test ends, whoever is still connected.
//
// With FENCEPOST_KEEP set, the database of a failed test is kept under a name that
// the log tells; of use only where the server stays, that is, with servers named
// by address.
func Database(tb testing.TB) string {
	tb.Helper()
	_, server := shared.get(tb)
	template, err := server.migrated(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return newDatabase(tb, server, template)
}

// EmptyDatabase is Database without migrations.
func EmptyDatabase(tb testing.TB) string {
	tb.Helper()
	_, server := shared.get(tb)
	return newDatabase(tb, server, "")
}

func newDatabase(tb testing.TB, server *postgresServer, template string) string {
	tb.Helper()
	name, err := server.create(tb.Context(), template)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// The test's own context has ended.
		ctx := context.Background()
		if tb.Failed() && os.Getenv(envKeep) != "" {
			kept, err := server.keep(ctx, name)
			if err != nil {
				tb.Errorf("keeping database %s: %v", name, err)
			}
			tb.Logf("kept database %s", kept)
			return
		}
		if err := server.drop(ctx, name); err != nil {
			tb.Errorf("dropping database %s: %v", name, err)
		}
	})
	return server.urlOf(name)
}

// Pool returns a pool on a new Database, closed when the test ends.
func Pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return PoolOn(tb, Database(tb))
}

// PoolOn returns a pool on the database that url names, closed when the test ends.
func PoolOn(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closePool(tb, pool) })
	return pool
}

// closePool does not wait for ever for a connection that the test did not give
// back: a failed test would hide its message behind the binary's time limit.
func closePool(tb testing.TB, pool *pgxpool.Pool) {
	tb.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(poolPatience):
		tb.Errorf("closing the pool: %d connections were not given back", pool.Stat().AcquiredConns())
	}
}

// Redis returns a client of the shared server, closed when the test ends. Other
// tests use the same server: use keys under a Prefix only, and OwnRedis to hurt it.
func Redis(tb testing.TB) redis.UniversalClient {
	tb.Helper()
	return RedisOn(tb, RedisURL(tb))
}

// RedisURL returns the address of the shared server.
func RedisURL(tb testing.TB) string {
	tb.Helper()
	s, _ := shared.get(tb)
	return s.RedisURL
}

// RedisOn returns a client of the server that url names, closed when the test ends.
func RedisOn(tb testing.TB, url string) redis.UniversalClient {
	tb.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClient(o)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("closing the Redis client: %v", err)
		}
	})
	return client
}

// Prefix returns a key prefix of this test's own, without braces. Its keys on the
// shared server are deleted when the test ends.
func Prefix(tb testing.TB) string {
	tb.Helper()
	prefix := "fencepost-test-" + randomName() + ":"
	url := RedisURL(tb)
	tb.Cleanup(func() {
		if err := deleteKeys(context.Background(), url, prefix); err != nil {
			tb.Errorf("deleting the keys under %s: %v", prefix, err)
		}
	})
	return prefix
}

func deleteKeys(ctx context.Context, url, prefix string) (err error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// OwnRedis starts a Redis that no other test uses, with further arguments for
// redis-server, and closes it when the test ends.
func OwnRedis(tb testing.TB, args ...string) *services.Redis {
	tb.Helper()
	shared.count(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), startPatience)
	defer cancel()
	r, err := services.StartRedis(ctx, args...)
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Errorf("closing Redis: %v", err)
		}
	})
	return r
}

// OwnPostgres starts a PostgreSQL that no other test uses, with further arguments for postgres, and closes it when
// the test ends.
func OwnPostgres(tb testing.TB, args ...string) *services.Postgres {
	tb.Helper()
	shared.count(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), startPatience)
	defer cancel()
	p, err := services.StartPostgres(ctx, args...)
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("closing PostgreSQL: %v", err)
		}
	})
	return p
}

// PgBouncer starts a pooler in front of the server of databaseURL and closes it
// when the test ends.
func PgBouncer(tb testing.TB, databaseURL string, opts *services.PgBouncerOptions) *services.PgBouncer {
	tb.Helper()
	shared.count(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), startPatience)
	defer cancel()
	p, err := services.StartPgBouncer(ctx, databaseURL, opts)
	if err != nil {
		missing(tb, err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("closing PgBouncer: %v", err)
		}
	})
	return p
}
