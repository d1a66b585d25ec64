package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/token"
)

// PostgresNamed reports whether the environment names a PostgreSQL in the way of libpq.
func PostgresNamed() bool {
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE", "PGPORT"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// CheckPostgres returns an error if an address cannot be read. An empty one stands for libpq's variables.
func CheckPostgres(text string) error {
	_, err := PostgresConfig(text)
	return err
}

// PostgresConfig reads an address.
func PostgresConfig(text string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, errors.New("not a PostgreSQL address") // the cause quotes it
	}
	// The address may be a service's own, with settings of its pool. The server would refuse them.
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return strings.HasPrefix(name, "pool_") })
	// Behind a pooler in transaction mode a prepared statement may be missing, or be there already.
	if !strings.Contains(text, "default_query_exec_mode") {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "fencepost"
	}
	return config, nil
}

// fewestConns is enough for a command, whatever the address says: some look while they hold a connection.
const fewestConns = 4

// OpenPostgres returns a pool. The server must answer, otherwise the error matches ErrUnavailable. ctx bounds the call.
func OpenPostgres(ctx context.Context, text string) (*pgxpool.Pool, error) {
	conn, err := PostgresConfig(text)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, errors.New("not a PostgreSQL address")
	}
	config.ConnConfig = conn
	config.MaxConns = max(config.MaxConns, fewestConns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("%w: PostgreSQL: %w", token.ErrUnavailable, err)
	}
	return pool, nil
}
