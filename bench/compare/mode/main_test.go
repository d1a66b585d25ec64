package mode_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { testenv.MainOfWaiting(m, 4) }

// attempt is longer than anything here should take.
const attempt = 20 * time.Second

// redisServers are the servers of one mode, and only one test uses them.
func redisServers(t *testing.T, name string) (urls []string) {
	t.Helper()
	n := 1
	if name == mode.RedisQuorum {
		n = 3
	}
	for range n {
		urls = append(urls, testenv.OwnRedis(t).URL())
	}
	return urls
}

// cell is the fixture of one run: its own tables, and modes that use them.
type cell struct {
	pool   *pgxpool.Pool
	config mode.Config
	name   string
}

func newCell(t *testing.T, name string, w work.Workload, redisURLs []string) *cell {
	t.Helper()
	c := newCells(t, name, redisURLs)
	c.reset(t, w)
	return c
}

// newCells is for one run after the other, each after a reset: a database of its own for each takes longer than the
// run.
func newCells(t *testing.T, name string, redisURLs []string) *cell {
	t.Helper()
	url := testenv.Database(t)
	c := &cell{pool: testenv.PoolOn(t, url), name: name}
	if err := work.CreateTables(t.Context(), c.pool); err != nil {
		t.Fatal(err)
	}
	// The database's name is nobody else's.
	c.config = mode.Config{
		PostgresURL: url,
		RedisURLs:   redisURLs,
		TTL:         10 * time.Second,
		Namespace:   c.pool.Config().ConnConfig.Database,
	}
	if name != mode.RedisQuorum {
		c.config.RedisURLs = redisURLs[:1]
	}
	return c
}

func (c *cell) reset(t *testing.T, w work.Workload) {
	t.Helper()
	if err := work.Reset(t.Context(), c.pool, w); err != nil {
		t.Fatal(err)
	}
}

func (c *cell) open(t *testing.T) mode.Mode {
	t.Helper()
	m, err := mode.Open(t.Context(), c.name, c.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// flush has every Redis forget everything.
func (c *cell) flush(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, url := range c.config.RedisURLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(o)
		if err := errors.Join(client.FlushAll(ctx).Err(), client.Close()); err != nil {
			t.Error(err)
		}
	}
}

func (c *cell) audit(t *testing.T, w work.Workload, acknowledged []work.Acknowledged) work.Audit {
	t.Helper()
	a, err := work.Look(t.Context(), c.pool, w, acknowledged)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// crowd lets several goroutines, each with a process's worth of connections, do a plan's operations, and returns
// what they were told has been done. Edit, where it is not nil, may change each operation.
func (c *cell) crowd(t *testing.T, p work.Plan, workers, each int, edit func(*work.Operation)) []work.Acknowledged {
	t.Helper()
	var mu sync.Mutex
	var done []work.Acknowledged
	var all sync.WaitGroup
	for worker := range workers {
		m, plan := c.open(t), p
		plan.Worker = worker
		all.Go(func() {
			next := plan.Operations()
			for range each {
				op := next()
				if edit != nil {
					edit(op)
				}
				if outcome, err := mode.Persist(t.Context(), m, op, attempt, nil); outcome != mode.Accepted {
					t.Errorf("operation %s: %s: %v", op.ID, outcome, err)
					return
				}
				mu.Lock()
				done = append(done, work.Acknowledged{ID: op.ID, Rows: op.Rows})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return done
}

func TestAModeWithoutAGuardCannotDoWithoutIt(t *testing.T) {
	t.Parallel()
	for _, c := range []*cell{
		{name: mode.ForUpdate, config: mode.Config{Unguarded: true}},
		{name: mode.RedisLock, config: mode.Config{Unguarded: true, Unwatched: true}},
		{name: mode.RedisLease, config: mode.Config{Unwatched: true}}, // the guard looks
	} {
		c.config.PostgresURL, c.config.RedisURLs = "postgres://localhost/x", []string{"redis://localhost"}
		c.config.TTL, c.config.Namespace = time.Second, "test"
		if m, err := mode.Open(t.Context(), c.name, c.config); err == nil {
			m.Close()
			t.Errorf("%s was opened with %+v", c.name, c.config)
		}
	}
}

func TestWhatCannotBeOpenedIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]mode.Config{
		"no-such-mode": {PostgresURL: "postgres://localhost/x"},
		mode.None:      {PostgresURL: "postgres://localhost:none/x"},
		mode.RedisLock: {PostgresURL: "postgres://localhost/x", RedisURLs: []string{"redis://%zz"}},
		// A quorum of one is none.
		mode.RedisQuorum: {
			PostgresURL: "postgres://localhost/x", RedisURLs: []string{"redis://localhost"},
			Namespace: "test", TTL: time.Second,
		},
		mode.RedisLease: {PostgresURL: "postgres://localhost/x", Namespace: "test", TTL: time.Second},
	} {
		if m, err := mode.Open(t.Context(), name, c); err == nil {
			m.Close()
			t.Errorf("%s was opened", name)
		}
	}
}
