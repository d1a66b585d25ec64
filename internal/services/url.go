package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// urlPatience is how long a server named by address may take to answer. It should be running already; the time covers
// servers started in the same second.
const urlPatience = 15 * time.Second

// fromURLs returns the servers that the environment names, once both have answered.
func fromURLs(ctx context.Context) (*Services, error) {
	pg, rd := os.Getenv(envPostgresURL), os.Getenv(envRedisURL)
	switch {
	case pg == "" && rd == "":
		return nil, fmt.Errorf("%s and %s are not set", envPostgresURL, envRedisURL)
	case pg == "":
		return nil, fmt.Errorf("%w: %s is set and %s is not", errOneURL, envRedisURL, envPostgresURL)
	case rd == "":
		return nil, fmt.Errorf("%w: %s is set and %s is not", errOneURL, envPostgresURL, envRedisURL)
	}
	// The parsers' own errors quote their input, password included.
	if _, err := pgx.ParseConfig(pg); err != nil || !strings.HasPrefix(pg, "postgres") {
		return nil, errors.New(envPostgresURL + " is not a PostgreSQL address (postgres://user@host:port/database)")
	}
	if _, err := redis.ParseURL(rd); err != nil {
		return nil, errors.New(envRedisURL + " is not a Redis address (redis://host:port/db)")
	}
	ctx, cancel := context.WithTimeout(ctx, urlPatience)
	defer cancel()
	var pgVersion, rdVersion string
	err := poll(ctx, nil, func(ctx context.Context) (err error) {
		pgVersion, err = askPostgres(ctx, pg)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking the PostgreSQL of %s: %w", envPostgresURL, err)
	}
	err = poll(ctx, nil, func(ctx context.Context) error {
		info, err := askRedis(ctx, rd)
		rdVersion = info.version
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("asking the Redis of %s: %w", envRedisURL, err)
	}
	return &Services{
		PostgresURL: pg, RedisURL: rd,
		Postgres: pgVersion + ", from " + envPostgresURL,
		Redis:    rdVersion + ", from " + envRedisURL,
		Way:      WayURL,
	}, nil
}
