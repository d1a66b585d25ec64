package cell

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/bench/torture/nemesis"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// stage is where one cell takes place.
type stage struct {
	lab     *Lab
	options *Options
	scene   nemesis.Stage
	workers []*worker
	address string // of the database
	undo    []func() error
}

// onClose registers a function that runs when the stage is closed, the last first.
func (s *stage) onClose(undo func() error) { s.undo = append(s.undo, undo) }

func (s *stage) close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	return errors.Join(errs...)
}

// build makes everything, with workers that work. The caller must call close, also after an error.
func (s *stage) build(ctx context.Context) error {
	o := s.options
	s.scene = nemesis.Stage{
		TTL: o.TTL, Postgres: s.lab.postgres,
		Random: rand.New(rand.NewPCG(seedOf(o), 0)),
	}
	for _, step := range []func(context.Context) error{s.servers, s.relays, s.begin} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) servers(ctx context.Context) error {
	if err := s.lab.empty(ctx); err != nil {
		return err
	}
	n := s.options.Mode.Servers()
	s.scene.Redis = append([]*services.Redis(nil), s.lab.redis[:n]...)
	if n == 1 {
		s.scene.Spare = s.lab.redis[1]
	}
	name, err := s.lab.database(ctx)
	if err != nil {
		return err
	}
	s.onClose(func() error { return s.lab.drop(ctx, name) })
	s.address = s.lab.address(name)
	pool, err := pgxpool.New(ctx, s.address)
	if err != nil {
		return fmt.Errorf("open a pool: %w", err)
	}
	s.onClose(func() error { pool.Close(); return nil })
	s.scene.Pool = pool
	return load.Fill(ctx, pool, s.options.Workload, s.options.Groups)
}

// relays starts those that each worker has for itself: one to PostgreSQL, and one to each Redis.
func (s *stage) relays(context.Context) error {
	u, err := url.Parse(s.address)
	if err != nil {
		return errors.New("the address of PostgreSQL cannot be parsed") // the cause quotes it
	}
	for range s.options.Workers {
		toPostgres, err := s.relay(u.Host)
		if err != nil {
			return err
		}
		var toRedis []*faults.Proxy
		for _, r := range s.scene.Redis {
			proxy, err := s.relay(r.Addr())
			if err != nil {
				return err
			}
			toRedis = append(toRedis, proxy)
		}
		s.scene.ToPostgres, s.scene.ToRedis = append(s.scene.ToPostgres, toPostgres), append(s.scene.ToRedis, toRedis)
	}
	return nil
}

func (s *stage) relay(host string) (*faults.Proxy, error) {
	proxy, err := faults.Start(host)
	if err != nil {
		return nil, fmt.Errorf("start a relay: %w", err)
	}
	s.onClose(func() error { proxy.Close(); return nil })
	return proxy, nil
}

// begin starts the workers, all at once.
func (s *stage) begin(ctx context.Context) error {
	if err := os.MkdirAll(s.options.Folder, 0o755); err != nil {
		return fmt.Errorf("make a folder for the history: %w", err)
	}
	errs := make([]error, s.options.Workers)
	var all sync.WaitGroup
	for i := range s.options.Workers {
		config, err := s.configOf(i)
		if err != nil {
			return err
		}
		w := &worker{command: s.options.Worker, config: *config, folder: s.options.Folder}
		s.workers, s.scene.Workers = append(s.workers, w), append(s.scene.Workers, w)
		s.onClose(w.kill)
		all.Go(func() { errs[i] = w.begin(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *stage) configOf(number int) (*load.Config, error) {
	address, err := s.scene.ToPostgres[number].Through(s.address)
	if err != nil {
		return nil, err
	}
	o := s.options
	c := &load.Config{
		Mode: o.Mode, Workload: o.Workload, Seed: seedOf(o), Worker: number, Threads: o.Threads, Groups: o.Groups,
		PostgresURL: address, TTL: o.TTL, Attempt: 8 * o.TTL,
	}
	for i, r := range s.scene.Redis {
		through, err := s.scene.ToRedis[number][i].Through(r.URL())
		if err != nil {
			return nil, err
		}
		c.RedisURLs = append(c.RedisURLs, through)
	}
	return c, nil
}

// end ends the workers and collects what is known of the cell.
func (s *stage) end(ctx context.Context, h *history.History) error {
	h.Ending.Stopped = history.Now()
	left := make([][]string, len(s.workers))
	errs := make([]error, len(s.workers))
	var all sync.WaitGroup
	for i, w := range s.workers {
		all.Go(func() { left[i], errs[i] = w.end(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var files []string
	for i, w := range s.workers {
		files = append(files, w.files...)
		h.Ending.Left = append(h.Ending.Left, left[i]...)
	}
	var err error
	if h.Ops, err = history.ReadOps(files...); err != nil {
		return err
	}
	if h.Journal, err = load.Journal(ctx, s.scene.Pool); err != nil {
		return err
	}
	if h.Ending.Numbers, err = load.Numbers(ctx, s.scene.Pool); err != nil {
		return err
	}
	if s.options.Workload == load.Transfer {
		h.Ending.Expected = int64(s.options.Groups * load.PerGroup * load.Deposit)
	}
	remains, err := s.remains(ctx)
	h.Ending.Left = append(h.Ending.Left, remains...)
	return err
}

// Keep writes a history into a cell's folder, where the files of its workers are.
func Keep(o *Options, h *history.History) error {
	return h.Write(filepath.Join(o.Folder, "history.json"))
}
