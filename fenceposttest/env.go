package fenceposttest

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Options are the settings of an Env. The zero value, and a nil pointer, mean the defaults.
type Options struct {
	// Store are the settings of the store. Default: those of [fencepost.New], with a namespace of this test's own.
	// WallClock is replaced by [Env.Now].
	Store fencepost.Options
	// Advisory makes a store of [fencepost.NewAdvisory], which needs no Redis.
	Advisory bool
}

// Env is what a test works with: a store, and the servers behind it. Everything ends with the test. Its methods fail
// the test if they cannot do what they are asked to; like [testing.TB.Fatal] they must be called from the test's
// goroutine, except where they say otherwise.
type Env struct {
	// Store is the worker's. The faults that the methods inject strike it.
	Store *fencepost.Store
	// Pool is the store's pool, on a database with fencepost's migrations. Its user owns the database.
	Pool *pgxpool.Pool
	// Redis is the store's client. nil with Options.Advisory.
	Redis redis.UniversalClient
	// Namespace is the store's.
	Namespace string
	// PostgresURL and RedisURL are the addresses of both, for a service that makes its own store. The faults strike it
	// as well, if it has this Namespace. RedisURL is empty with Options.Advisory.
	PostgresURL, RedisURL string

	tb                testing.TB
	postgres, network *faults.Proxy // the way to PostgreSQL, and to Redis
	aside             *pgxpool.Pool // to the same database, past the faults
	redisAside        redis.UniversalClient
	other             *fencepost.Store // another worker's
	clock             *clock
}

// New gives a test its environment. opts may be nil.
func New(tb testing.TB, opts *Options) *Env {
	tb.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Store.Namespace == "" {
		o.Store.Namespace = "test-" + strings.ToLower(rand.Text())
	}
	e := &Env{tb: tb, Namespace: o.Store.Namespace, clock: &clock{}}
	o.Store.WallClock = e.Now
	if o.Advisory {
		e.connect(testenv.DatabaseWithoutRedis(tb))
		e.Store = e.must(fencepost.NewAdvisory(e.Pool, &o.Store))
		return e
	}
	e.connect(testenv.Database(tb))
	e.connectRedis(testenv.RedisURL(tb))
	e.Store = e.must(fencepost.New(e.Pool, e.Redis, &o.Store))
	o.Store.WallClock, o.Store.Events, o.Store.Label = nil, fencepost.Events{}, "another worker"
	e.other = e.must(fencepost.New(e.aside, e.redisAside, &o.Store))
	return e
}

func (e *Env) must(s *fencepost.Store, err error) *fencepost.Store {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatalf("make a store: %v", err)
	}
	return s
}

func (e *Env) connect(address string) {
	e.tb.Helper()
	e.aside = testenv.PoolOn(e.tb, address)
	c := e.aside.Config().ConnConfig
	e.postgres = faults.NewProxy(e.tb, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	e.PostgresURL = e.postgres.URL(e.tb, address)
	e.Pool = testenv.PoolOn(e.tb, e.PostgresURL)
}

func (e *Env) connectRedis(address string) {
	e.tb.Helper()
	e.redisAside = testenv.RedisOn(e.tb, address)
	o, err := redis.ParseURL(address)
	if err != nil {
		e.tb.Fatal(err)
	}
	e.network = faults.NewProxy(e.tb, o.Addr)
	e.RedisURL = e.network.URL(e.tb, address)
	e.Redis = testenv.RedisOn(e.tb, e.RedisURL)
	e.tb.Cleanup(func() { // it runs before the clients are closed, and the server is another test's as well
		if err := e.forget(context.Background()); err != nil {
			e.tb.Errorf("delete this test's keys: %v", err)
		}
	})
}

// prefix begins each key of the store in Redis.
func (e *Env) prefix() string { return "fencepost:" + e.Namespace }

// forget deletes each key of the store.
func (e *Env) forget(ctx context.Context) error {
	keys := e.redisAside.Scan(ctx, 0, e.prefix()+":*", 1000).Iterator()
	var err error
	for keys.Next(ctx) {
		err = errors.Join(err, e.redisAside.Del(ctx, keys.Val()).Err())
	}
	return errors.Join(err, keys.Err())
}
