package cell

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/migrations"
)

// redisServers is how many a lab has: those of a quorum.
const redisServers = 3

// Lab has the servers, which serve one cell after the other. It is not safe for concurrent use.
type Lab struct {
	postgres *services.Postgres
	redis    []*services.Redis
	template string // of the cells' databases
}

// OpenLab starts the servers. The caller must Close the lab.
func OpenLab(ctx context.Context) (*Lab, error) {
	l := &Lab{template: "torture_" + strings.ToLower(rand.Text()[:12])}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) (err error) {
	if l.postgres, err = services.StartPostgres(ctx, "-c", "max_connections=200"); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	for range redisServers {
		// Each write is with the kernel before it is confirmed, so a server that is killed loses none.
		r, err := services.StartRedis(ctx, "--appendonly", "yes", "--appendfsync", "no")
		if err != nil {
			return fmt.Errorf("start Redis: %w", err)
		}
		l.redis = append(l.redis, r)
	}
	if err := l.admin(ctx, "CREATE DATABASE "+l.template); err != nil {
		return err
	}
	return l.migrate(ctx)
}

// migrate makes the template of the cells' databases.
func (l *Lab) migrate(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, l.address(l.template))
	if err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	_, err = migrations.Up(ctx, db, nil)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("make the cells' database: %w", err)
	}
	return load.CreateTables(ctx, pool)
}

// address returns the address of a database.
func (l *Lab) address(database string) string {
	u, err := url.Parse(l.postgres.URL())
	if err != nil {
		return "" // package services has made it
	}
	u.Path = "/" + database
	return u.String()
}

// admin runs a statement outside of the cells' databases.
func (l *Lab) admin(ctx context.Context, statement string) error {
	pool, err := pgxpool.New(ctx, l.postgres.URL())
	if err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, statement); err != nil {
		return fmt.Errorf("make or remove a database: %w", err)
	}
	return nil
}

// database makes a new database.
func (l *Lab) database(ctx context.Context) (string, error) {
	name := "torture_cell_" + strings.ToLower(rand.Text()[:12])
	return name, l.admin(ctx, "CREATE DATABASE "+name+" TEMPLATE "+l.template)
}

// drop removes a database, even if sessions are connected to it.
func (l *Lab) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return l.admin(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// empty makes the Redis servers forget everything.
func (l *Lab) empty(ctx context.Context) error {
	for _, r := range l.redis {
		if err := onRedis(r, func(c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
			return err
		}
	}
	return nil
}

func onRedis(r *services.Redis, fn func(*redis.Client) error) error {
	o, err := redis.ParseURL(r.URL())
	if err != nil {
		return errors.New("the address of Redis cannot be parsed") // the cause quotes it
	}
	o.PoolSize, o.ContextTimeoutEnabled = 1, true
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }() // nothing is left to be lost
	if err := fn(c); err != nil {
		return fmt.Errorf("ask Redis: %w", err)
	}
	return nil
}

// Versions says what the servers are.
func (l *Lab) Versions() map[string]string {
	return map[string]string{"postgres": l.postgres.Description, "redis": l.redis[0].Description}
}

// Close stops the servers.
func (l *Lab) Close() error {
	var errs []error
	if l.postgres != nil {
		errs = append(errs, l.postgres.Close())
	}
	for _, r := range l.redis {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
