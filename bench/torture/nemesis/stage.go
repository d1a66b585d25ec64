package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// Worker is a worker as the nemesis sees it.
type Worker interface {
	// Stop stops the process (SIGSTOP), and Resume lets it go on.
	Stop(ctx context.Context) error
	Resume() error
	// Replace kills the process (SIGKILL) and starts another one in its place.
	Replace(ctx context.Context) error
	// Starve keeps all connections of its pool in use for a while.
	Starve(d time.Duration) error
	// Jump moves its wall clock.
	Jump(by time.Duration) error
}

// Stage is what the nemesis can break.
type Stage struct {
	TTL     time.Duration
	Workers []Worker
	// Redis are the servers that the workers use. Spare is one that nobody uses yet.
	Redis []*services.Redis
	Spare *services.Redis
	// ToRedis and ToPostgres are the relays of each worker.
	ToRedis    [][]*faults.Proxy
	ToPostgres []*faults.Proxy
	Postgres   *services.Postgres
	// Pool is the nemesis's own, on the database of the workers.
	Pool *pgxpool.Pool
	// Random is the schedule's. It is used by one goroutine.
	Random *rand.Rand
}

// some returns a duration between two multiples of the TTL.
func (s *Stage) some(least, most float64) time.Duration {
	return time.Duration((least + s.Random.Float64()*(most-least)) * float64(s.TTL))
}

// victim draws a worker.
func (s *Stage) victim() int { return s.Random.IntN(len(s.Workers)) }

// server draws a Redis server.
func (s *Stage) server() int { return s.Random.IntN(len(s.Redis)) }

// ask calls question with a client of a server.
func ask(server *services.Redis, question func(*redis.Client) error) error {
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		return errors.New("the address of Redis cannot be parsed") // the cause quotes it
	}
	o.PoolSize, o.ContextTimeoutEnabled, o.DisableIdentity = 1, true, true
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }() // nothing is left to be lost
	if err := question(c); err != nil {
		return fmt.Errorf("ask Redis: %w", err)
	}
	return nil
}

// forAWhile breaks something, waits, and puts it right, also if ctx has ended.
func forAWhile(ctx context.Context, d time.Duration, breaks, heals func() error) error {
	if err := breaks(); err != nil {
		return errors.Join(err, heals())
	}
	return errors.Join(wait.For(ctx, d), heals())
}
