package services

import (
	"context"
	"fmt"
)

// Options configures started servers. Nil means the defaults. Servers named by URL are used as they are.
type Options struct {
	// Durable makes PostgreSQL flush to disk on commit, as in production; use it for benchmarks. Default false: fsync
	// is off, which is fine for disposable data.
	Durable bool
}

func (o *Options) withDefaults() Options {
	if o == nil {
		return Options{}
	}
	return *o
}

// Services is a PostgreSQL and a Redis server, ready for use.
type Services struct {
	// PostgresURL is a postgres:// address whose role may create databases. It may contain a password.
	PostgresURL string
	// RedisURL is a redis:// address.
	RedisURL string
	// Postgres and Redis describe the servers for people, such as "15.18, local binary
	// /usr/lib/postgresql/15/bin/postgres". They contain no password.
	Postgres, Redis string
	// Way is the way the servers were found or started.
	Way Way
	// Passed are the ways that were tried before, and why each did not work.
	Passed []Attempt

	host *hostProcess // nil for servers named by URL
}

// Start finds or starts both servers and returns once each has answered a query. Ctx bounds the start, not the life of
// the servers; Start also has its own time limits (minutes if an image must be pulled, otherwise seconds). The caller
// must Close the result; if the process dies before that, the servers stop with it.
//
// Errors: [*UnavailableError] if no way works, or if the forced one does not.
func Start(ctx context.Context, opts *Options) (*Services, error) {
	o := opts.withDefaults()
	var found *Services
	passed, err := eachWay(ctx, startOrder, func(w Way) (err error) {
		if w == WayURL {
			found, err = fromURLs(ctx)
			return err
		}
		found, err = startBoth(ctx, w, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	found.Passed = passed
	return found, nil
}

func startBoth(ctx context.Context, w Way, o Options) (*Services, error) {
	h, a, err := startHost(ctx, request{Op: opServices, Way: w, Durable: o.Durable})
	if err != nil {
		return nil, err
	}
	return &Services{
		PostgresURL: a.PostgresURL, RedisURL: a.RedisURL,
		Postgres: a.Postgres, Redis: a.Redis,
		Way: w, host: h,
	}, nil
}

// String describes the servers in one line.
func (s *Services) String() string {
	return fmt.Sprintf("services (%s): PostgreSQL %s; Redis %s", s.Way, s.Postgres, s.Redis)
}

// Close stops the servers that Start started and returns when they are gone. It leaves servers named by URL alone. A
// second call does nothing.
func (s *Services) Close() error {
	if s.host == nil {
		return nil
	}
	return s.host.close()
}
