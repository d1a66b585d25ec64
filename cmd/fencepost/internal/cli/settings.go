package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
)

// databaseFlags name the PostgreSQL.
type databaseFlags struct {
	Database string `env:"FENCEPOST_POSTGRES_URL,DATABASE_URL" placeholder:"URL" help:"The database, as postgres://user:password@host:port/name. Without it, libpq's PGHOST and so on."`
}

// Validate refuses an empty address, because the driver would then choose a server by itself. It runs before kong looks
// for missing flags, and an empty variable sets an empty flag.
func (f *databaseFlags) Validate() error {
	if f.Database == "" && !servers.PostgresNamed() {
		return errors.New("--database is missing or empty: give it an address, or set " +
			"FENCEPOST_POSTGRES_URL, DATABASE_URL or PGHOST")
	}
	if err := servers.CheckPostgres(f.Database); err != nil {
		return fmt.Errorf("--database is %w", err)
	}
	return nil
}

// namespaceFlags name the namespace.
type namespaceFlags struct {
	Namespace string `default:"default" env:"FENCEPOST_NAMESPACE" placeholder:"NAME" help:"The namespace of the stores (default: ${default})."`
}

// serverFlags name both servers and the namespace.
type serverFlags struct {
	databaseFlags
	namespaceFlags
	Redis    []string `sep:" " env:"FENCEPOST_REDIS_URL,REDIS_URL" placeholder:"URL" help:"The Redis that holds the leases: redis://user:password@host:port/0, rediss:// for TLS, redis+sentinel://host,host/?master=NAME, redis+cluster://host,host. Several for a quorum: repeat the flag, or separate them by spaces in the variable."`
	Advisory bool     `env:"FENCEPOST_ADVISORY" help:"There is no Redis: the leases are PostgreSQL's advisory locks."`
}

// Validate refuses addresses that cannot be read.
func (f *serverFlags) Validate() error {
	if err := f.databaseFlags.Validate(); err != nil {
		return err
	}
	switch {
	case f.Advisory:
		return nil
	case len(f.Redis) == 0:
		return errors.New("--redis is missing: give it an address, set FENCEPOST_REDIS_URL or REDIS_URL, or say --advisory")
	}
	if err := servers.CheckRedis(f.Redis); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// connectWithin bounds how long a command waits for its servers to answer for the first time.
const connectWithin = 10 * time.Second

// site is what a command works on.
type site struct {
	pool      *pgxpool.Pool
	clients   []redis.UniversalClient // none in advisory mode
	namespace string
}

// open connects to both servers. The errors of a server that does not answer match ErrUnavailable.
func (f *serverFlags) open(ctx context.Context) (*site, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	pool, err := servers.OpenPostgres(ctx, f.Database)
	if err != nil {
		return nil, err
	}
	s := &site{pool: pool, namespace: f.Namespace}
	if f.Advisory {
		return s, nil
	}
	if s.clients, err = servers.OpenRedis(ctx, f.Redis); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// close closes what open opened.
func (s *site) close() error {
	s.pool.Close()
	return servers.CloseRedis(s.clients)
}

// store returns a store on the site. Its log goes to std's standard error.
func (s *site) store(std *streams, opts fencepost.Options) (*fencepost.Store, error) {
	opts.Namespace = s.namespace
	opts.Logger = slog.New(slog.NewTextHandler(censor{std.err}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	switch len(s.clients) {
	case 0:
		return fencepost.NewAdvisory(s.pool, &opts)
	case 1:
		return fencepost.New(s.pool, s.clients[0], &opts)
	default:
		return fencepost.NewQuorum(s.pool, s.clients, &opts)
	}
}
