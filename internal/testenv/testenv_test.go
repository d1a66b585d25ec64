package testenv_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func exists(t *testing.T, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, query string, args ...any,
) (found bool) {
	t.Helper()
	if err := q.QueryRow(t.Context(), "SELECT EXISTS ("+query+")", args...).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

func admin(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return testenv.PoolOn(t, testenv.AdminURL(t))
}

func nameOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("not an address")
	}
	return strings.TrimPrefix(u.Path, "/")
}

const hasFence = "SELECT FROM pg_tables WHERE schemaname = 'fencepost' AND tablename = 'fence'"

// TestDatabaseIsMigratedAndOfOnesOwn: what one test writes no other sees.
func TestDatabaseIsMigratedAndOfOnesOwn(t *testing.T) {
	t.Parallel()
	one, other := testenv.Pool(t), testenv.Pool(t)
	if !exists(t, one, hasFence) {
		t.Error("there is no table fencepost.fence")
	}
	if _, err := one.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
		t.Fatal(err)
	}
	if exists(t, other, "SELECT FROM pg_tables WHERE tablename = 'mine'") {
		t.Error("two databases are one")
	}
}

func TestEmptyDatabaseIsEmpty(t *testing.T) {
	t.Parallel()
	pool := testenv.PoolOn(t, testenv.EmptyDatabase(t))
	if exists(t, pool, "SELECT FROM pg_namespace WHERE nspname = 'fencepost'") {
		t.Error("there is a schema fencepost")
	}
}

// TestDatabaseIsDropped: also with somebody still connected.
func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("use", func(sub *testing.T) {
		address := testenv.Database(sub)
		name = nameOf(sub, address)
		conn, err := pgx.Connect(sub.Context(), address)
		if err != nil {
			sub.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	})
	if exists(t, admin(t), "SELECT FROM pg_database WHERE datname = $1", name) {
		t.Error("the database outlived its test")
	}
}

// TestSweep: databases of a run that has died go, those of a living run stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	dead := "fencepost_test_" + strings.ToLower(t.Name()) + "_x"
	a := admin(t)
	if _, err := a.Exec(t.Context(), "CREATE DATABASE "+pgx.Identifier{dead}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	living := nameOf(t, testenv.EmptyDatabase(t))
	if err := testenv.Sweep(t.Context(), t); err != nil {
		t.Fatal(err)
	}
	const database = "SELECT FROM pg_database WHERE datname = $1"
	if exists(t, a, database, dead) {
		t.Error("the dead run's database is still there")
	}
	if !exists(t, a, database, living) {
		t.Error("the living run's database is gone")
	}
}

func TestPrefixIsOfOnesOwnAndCleared(t *testing.T) {
	t.Parallel()
	client := testenv.Redis(t)
	var key string
	t.Run("use", func(t *testing.T) {
		key = testenv.Prefix(t) + "k"
		if other := testenv.Prefix(t); strings.HasPrefix(key, other) || strings.ContainsAny(other, "{}") {
			t.Errorf("prefix %q is no good", other)
		}
		if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	if err := client.Get(t.Context(), key).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("got %v for the key of a test that has ended, want redis.Nil", err)
	}
}

func TestOwnRedisIsAnother(t *testing.T) {
	t.Parallel()
	own := testenv.OwnRedis(t, "--maxmemory", "64mb")
	if own.URL() == testenv.RedisURL(t) {
		t.Error("the own server is the shared one")
	}
	got, err := testenv.RedisOn(t, own.URL()).ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "67108864" {
		t.Errorf("maxmemory is %v (%v), want 64 MiB", got, err)
	}
}

func TestPgBouncerReachesTheDatabase(t *testing.T) {
	t.Parallel()
	address := testenv.Database(t)
	config, err := pgx.ParseConfig(testenv.PgBouncer(t, address, nil).URL())
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if !exists(t, conn, hasFence) {
		t.Error("there is no table fencepost.fence")
	}
}

// TestKeep fails when TestFailedDatabaseIsKept runs it as a child.
func TestKeep(t *testing.T) {
	testenv.EmptyDatabase(t)
	if os.Getenv(failEnv) != "" {
		t.Fail()
	}
}

// TestSentinelsAreStarted: a topology comes from installed programs, whatever the shared servers are.
func TestSentinelsAreStarted(t *testing.T) {
	t.Parallel()
	s := testenv.Sentinel(t, nil)
	if err := testenv.SentinelClient(t, s, nil).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
