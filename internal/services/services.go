package services

import (
	"context"
	"fmt"
)

// Options says how started servers behave. Nil means the defaults. Servers that
// are named by URL are taken as they are.
type Options struct {
	// Durable makes PostgreSQL flush to disk on commit, as in production; for
	// benchmarks. Default false: fsync is off, which is fine for data that is
	// thrown away.
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
	// PostgresURL is a postgres:// address with the right to create databases. It
	// may hold a password.
	PostgresURL string
	// RedisURL is a redis:// address.
	RedisURL string
	// Postgres and Redis describe the servers for people, such as "15.18, local
	// binary /usr/lib/postgresql/15/bin/postgres". They hold no password.
	Postgres, Redis string
	// Way is where the servers came from.
	Way Way
	// Passed are the ways that were tried before, and why they did not serve.
	Passed []Attempt

	host *hostProcess // nil for servers named by URL
}

// Start finds or starts both servers and returns once each has answered a real
// query. Ctx bounds the start, not the life of the servers; a start is bounded by
// itself too (minutes where an image must be pulled, else seconds). The caller
// must Close the result; if the process dies before that, the servers go with it.
//
// Errors: [*UnavailableError] when no way serves, or when the forced one does not.
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

// String says in one line which servers were taken.
func (s *Services) String() string {
	return fmt.Sprintf("services (%s): PostgreSQL %s; Redis %s", s.Way, s.Postgres, s.Redis)
}

// Close stops what Start started and returns when it is gone; servers named by
// URL are left alone. A second call does nothing.
func (s *Services) Close() error {
	if s.host == nil {
		return nil
	}
	return s.host.close()
}
