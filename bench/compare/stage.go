package compare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
	"github.com/fencepost-pg/fencepost/internal/faults"
)

// quorumServers is how many Redis servers the mode redis-quorum has.
const quorumServers = 3

// stage is where one cell takes place.
type stage struct {
	run *run
	job job

	database string // its name
	scene    fault.Scene
	tally    *worker.Tally
	redis    []string // the addresses of the cell's Redis servers

	undo []func() error // what close does, the last first
}

// onClose registers a function that runs when the stage is closed.
func (s *stage) onClose(undo func() error) { s.undo = append(s.undo, undo) }

// close leaves nothing of the stage behind.
func (s *stage) close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	return errors.Join(errs...)
}

// build makes everything, with workers that are ready to begin. The caller must call close, also after an error.
func (s *stage) build(ctx context.Context) error {
	s.scene = fault.Scene{
		Workload: s.job.workload,
		History:  fault.NewHistory(),
		HoldsUp:  mode.HoldsUp(s.job.mode),
		TTL:      ttl,
	}
	s.tally = worker.NewTally()
	for _, step := range []func(context.Context) error{
		s.makeDatabase, s.takeRedis, s.makeWays,
		s.prepareFault, s.startWorkers,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) makeDatabase(ctx context.Context) (err error) {
	s.database, err = s.run.databases.create(ctx)
	s.onClose(func() error { return s.run.databases.drop(ctx, s.database) })
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.run.databases.address(s.database))
	if err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	s.onClose(func() error { pool.Close(); return nil })
	s.scene.Pool = pool
	return work.Reset(ctx, pool, s.job.workload)
}

// takeRedis takes the servers that the mode needs.
func (s *stage) takeRedis(ctx context.Context) error {
	servers := 0
	switch {
	case s.job.needsPair():
		pair, err := s.run.pairs.take(ctx)
		if err != nil {
			return err
		}
		s.onClose(func() error { return s.run.pairs.putBack(ctx, pair) })
		s.scene.Pair, s.redis = pair, []string{pair.Primary.URL()}
	case s.job.mode == mode.RedisQuorum:
		servers = quorumServers
	case mode.UsesRedis(s.job.mode):
		servers = 1
	}
	for range servers {
		server, err := s.run.singles.take(ctx)
		if err != nil {
			return err
		}
		s.onClose(func() error { return s.run.singles.putBack(ctx, server) })
		s.scene.Servers, s.redis = append(s.scene.Servers, server), append(s.redis, server.URL())
	}
	return nil
}

// makeWays starts the relays that each worker has for itself: one to PostgreSQL, and one to each Redis.
func (s *stage) makeWays(context.Context) error {
	for range s.run.options.Workers {
		toPostgres, err := s.relay(s.run.databases.url.Host, "5432")
		if err != nil {
			return err
		}
		var toRedis []*faults.Proxy
		for _, address := range s.redis {
			u, err := url.Parse(address)
			if err != nil {
				return errors.New("the Redis address is not valid") // the cause quotes it
			}
			proxy, err := s.relay(u.Host, "6379")
			if err != nil {
				return err
			}
			toRedis = append(toRedis, proxy)
		}
		s.scene.Postgres, s.scene.Redis = append(s.scene.Postgres, toPostgres), append(s.scene.Redis, toRedis)
	}
	return nil
}

func (s *stage) relay(host, defaultPort string) (*faults.Proxy, error) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(host, defaultPort)
	}
	proxy, err := faults.Start(host)
	if err != nil {
		return nil, fmt.Errorf("start a relay: %w", err)
	}
	s.onClose(func() error { proxy.Close(); return nil })
	return proxy, nil
}

func (s *stage) prepareFault(ctx context.Context) error { return s.job.fault.Prepare(ctx, &s.scene) }

func (s *stage) startWorkers(ctx context.Context) error {
	random := s.job.random(s.run.options.Seed)
	s.scene.Victim = random.IntN(s.run.options.Workers)
	seed := random.Uint64()
	for i := range s.run.options.Workers {
		config, err := s.configOf(i, seed)
		if err != nil {
			return err
		}
		handle, err := worker.Start(ctx, &worker.Options{Command: s.run.options.Worker, Watch: s.watch(i)}, config)
		if err != nil {
			return fmt.Errorf("start worker %d: %w", i, err)
		}
		s.onClose(handle.Close)
		s.scene.Workers = append(s.scene.Workers, handle)
		s.scene.Applications = append(s.scene.Applications, application(i))
	}
	return nil
}

// application is the application_name of a worker's connections, by which its backends are found. It is the
// worker's label too, which the session of an advisory lock is called by.
func application(number int) string { return fmt.Sprintf("worker %d", number) }

func (s *stage) configOf(number int, seed uint64) (*worker.Config, error) {
	through, err := s.scene.Postgres[number].Through(s.run.databases.address(s.database))
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(through)
	if err != nil {
		return nil, errors.New("the PostgreSQL address is not valid") // the cause quotes it
	}
	parameters := u.Query()
	parameters.Set("application_name", application(number))
	u.RawQuery = strings.ReplaceAll(parameters.Encode(), "+", "%20") // PostgreSQL takes a plus for itself
	c := &worker.Config{
		Mode:        s.job.mode,
		Workload:    s.job.workload,
		Keyed:       s.job.keyed,
		Seed:        seed,
		Worker:      number,
		PostgresURL: u.String(),
		TTL:         ttl,
		Namespace:   "compare",
		Unguarded:   s.run.options.unguarded == s.job.mode,
		Unwatched:   s.run.options.unwatched == s.job.mode,
		// Longer than any fault lasts, and not so long that one lost request decides a cell.
		Attempt: 8 * ttl,
	}
	if s.job.fault.Holds {
		// The victim must still be at its attempt when the fault is over, however long Redis takes to start.
		c.TTL, c.Attempt = longTTL, longTTL
	}
	for i, address := range s.redis {
		through, err := s.scene.Redis[number][i].Through(address)
		if err != nil {
			return nil, err
		}
		c.RedisURLs = append(c.RedisURLs, through)
	}
	return c, nil
}

func (s *stage) watch(number int) func(worker.Event) {
	return func(e worker.Event) {
		s.scene.History.Add(number, e)
		s.tally.Watch(e)
	}
}
