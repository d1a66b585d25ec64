package testenv

import (
	"context"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

const (
	poolSize     = 16               // enough for eight workers with two connections each
	poolPatience = 30 * time.Second // pgx takes up to 15 s to close a connection whose context ended within a statement
)

// Database returns the address of a new database with fencepost's migrations in it. It is dropped when the test ends,
// even if clients are still connected.
//
// With FENCEPOST_KEEP set, the database of a failed test is kept under a name that the log gives. This helps only if
// the server stays, that is, with servers named by address.
func Database(tb testing.TB) string {
	tb.Helper()
	_, server := shared.get(tb)
	template, err := server.migrated(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return newDatabase(tb, server, template)
}

// DatabaseWithoutRedis is Database on a machine that need not have a Redis. If it has none, the test gets a PostgreSQL
// of its own.
func DatabaseWithoutRedis(tb testing.TB) string {
	tb.Helper()
	if shared.begin(); shared.services != nil {
		return Database(tb)
	}
	p, err := startPostgres(tb)
	if err != nil {
		missing(tb, errors.Join(shared.err, err))
	}
	if err := migrate(tb.Context(), p.URL()); err != nil {
		tb.Fatal(err)
	}
	return p.URL()
}

// EmptyDatabase is Database without migrations.
func EmptyDatabase(tb testing.TB) string {
	tb.Helper()
	_, server := shared.get(tb)
	return newDatabase(tb, server, "")
}

// EncodedDatabase is Database with an encoding other than UTF8, for example "LATIN1". The address says
// client_encoding=UTF8.
func EncodedDatabase(tb testing.TB, encoding string) string {
	tb.Helper()
	_, server := shared.get(tb)
	name, err := server.createEncoded(tb.Context(), encoding)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.drop(context.Background(), name); err != nil {
			tb.Errorf("dropping database %s: %v", name, err)
		}
	})
	return WithEncoding(server.urlOf(name), "UTF8")
}

// WithEncoding returns the address of a database with a client_encoding in it.
func WithEncoding(address, encoding string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic("the address was good enough to connect") // Its text may hold a password.
	}
	query := u.Query()
	query.Set("client_encoding", encoding)
	u.RawQuery = query.Encode()
	return u.String()
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

// closePool does not wait forever for a connection that the test did not give back: a failed test would hide its
// message behind the binary's time limit.
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

// Redis returns a client of the shared server, closed when the test ends. Other tests use the same server: use only
// keys under a Prefix, and use OwnRedis to harm a server.
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

// Prefix returns a key prefix for this test, without braces. Its keys on the shared server are deleted when the test
// ends.
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

// OwnRedis starts a Redis that no other test uses, with additional arguments for redis-server, and closes it when the
// test ends.
func OwnRedis(tb testing.TB, args ...string) *services.Redis {
	tb.Helper()
	shared.count(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), startPatience)
	defer cancel()
	r, err := services.StartRedis(ctx, args...)
	if err != nil {
		noOwn(tb, err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Errorf("closing Redis: %v", err)
		}
	})
	return r
}

// OwnPostgres starts a PostgreSQL that no other test uses, with additional arguments for postgres, and closes it when
// the test ends.
func OwnPostgres(tb testing.TB, args ...string) *services.Postgres {
	tb.Helper()
	p, err := startPostgres(tb, args...)
	if err != nil {
		noOwn(tb, err)
	}
	return p
}

func startPostgres(tb testing.TB, args ...string) (*services.Postgres, error) {
	tb.Helper()
	shared.count(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), startPatience)
	defer cancel()
	p, err := services.StartPostgres(ctx, args...)
	if err == nil {
		tb.Cleanup(func() {
			if err := p.Close(); err != nil {
				tb.Errorf("closing PostgreSQL: %v", err)
			}
		})
	}
	return p, err
}
