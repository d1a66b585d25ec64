package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
)

const (
	// connections is how many a worker's pool has: fewer than its threads would like.
	connections = 4
	// redisPatience is how long the Redis client waits for a server, each time.
	redisPatience = time.Second
)

// servers are the connections of one worker.
type servers struct {
	label string
	pool  *pgxpool.Pool
	redis []redis.UniversalClient
	// ahead is how far this process's wall clock has jumped.
	ahead atomic.Int64
}

func connect(ctx context.Context, c *Config) (*servers, error) {
	config, err := pgxpool.ParseConfig(c.PostgresURL)
	if err != nil {
		return nil, errors.New("the address of PostgreSQL cannot be parsed") // the cause may quote the password
	}
	config.MaxConns = connections
	fence.Notices(config.ConnConfig)
	s := &servers{label: fmt.Sprintf("worker %d.%d", c.Worker, c.Life)}
	config.ConnConfig.RuntimeParams["application_name"] = s.label
	for _, url := range c.RedisURLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, errors.New("the address of Redis cannot be parsed") // as above
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisPatience, redisPatience, redisPatience
		o.ContextTimeoutEnabled = true
		s.redis = append(s.redis, redis.NewClient(o))
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		s.close()
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	return s, nil
}

// now is this process's wall clock.
func (s *servers) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func (s *servers) store(c *Config) (*fencepost.Store, error) {
	o := &fencepost.Options{TTL: c.TTL, Label: s.label, MaxIdle: 2 * c.TTL, WallClock: s.now}
	switch c.Mode {
	case Redis:
		return fencepost.New(s.pool, s.redis[0], o)
	case Quorum:
		return fencepost.NewQuorum(s.pool, s.redis, o)
	case Advisory:
		return fencepost.NewAdvisory(s.pool, o)
	case InTx, Lock:
	}
	return nil, fmt.Errorf("mode %s has no store", c.Mode)
}

// leaser grants leases without any store. A lease.Manager and a lease.Quorum are one.
type leaser interface {
	Acquire(ctx context.Context, resource string, ttl time.Duration, o *lease.AcquireOptions) (*lease.Lease, error)
}

func (s *servers) leaser(m Mode) (leaser, error) {
	o := lease.Options{Prefix: "torture", Label: s.label, WallClock: s.now}
	if m == Quorum {
		return lease.NewQuorum(s.redis, &lease.QuorumOptions{Options: o})
	}
	return lease.NewManager(s.redis[0], &o)
}

// starve keeps all connections in use for a while.
func (s *servers) starve(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for range connections {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			break // the time is over
		}
		defer conn.Release()
	}
	<-ctx.Done()
}

// close closes all connections. No call may be under way.
func (s *servers) close() {
	if s.pool != nil {
		s.pool.Close()
	}
	for _, client := range s.redis {
		_ = client.Close() // nothing is under way
	}
}
