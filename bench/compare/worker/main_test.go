//go:build unix

package worker_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
	"github.com/fencepost-pg/fencepost/bench/compare/workertest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestMain(m *testing.M) { workertest.Main(m) }

// patience bounds every wait of a test.
const patience = 20 * time.Second

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// cell is what one test works with.
type cell struct {
	pool   *pgxpool.Pool
	config worker.Config
	tally  *worker.Tally
}

func newCell(t *testing.T, name string, w work.Workload) *cell {
	t.Helper()
	url := testenv.Database(t)
	c := &cell{pool: testenv.PoolOn(t, url), tally: worker.NewTally()}
	if err := errors.Join(work.CreateTables(t.Context(), c.pool), work.Reset(t.Context(), c.pool, w)); err != nil {
		t.Fatal(err)
	}
	c.config = worker.Config{
		Mode: name, Workload: w, Seed: 11, PostgresURL: url, RedisURLs: []string{testenv.OwnRedis(t).URL()},
		TTL: 10 * time.Second, Namespace: "test", Attempt: patience,
	}
	return c
}

// start starts the worker with a number. Its events go to the tally, and those of the wanted kinds also to the channel.
func (c *cell) start(t *testing.T, number int, wanted ...worker.What) (*worker.Handle, <-chan worker.Event) {
	t.Helper()
	events := make(chan worker.Event, 10_000)
	config := c.config
	config.Worker = number
	h, err := worker.Start(soon(t), &worker.Options{Command: command(t), Watch: func(e worker.Event) {
		c.tally.Watch(e)
		for _, w := range wanted {
			if e.What == w {
				events <- e
			}
		}
	}}, &config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, events
}

func command(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, workertest.Argument}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// next returns the next event, and fails the test if none comes in time.
func next(t *testing.T, events <-chan worker.Event) worker.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(patience):
		t.Fatal("nothing happened")
		return worker.Event{}
	}
}

func (c *cell) audit(t *testing.T) work.Audit {
	t.Helper()
	a, err := work.Look(t.Context(), c.pool, c.config.Workload, c.tally.Sum().Acknowledged)
	must(t, err)
	return a
}
