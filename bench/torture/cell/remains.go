package cell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/wait"
)

// settling is how long the servers may take to notice that the workers are gone.
const settling = 15 * time.Second

// remains returns what is left in the servers that should be gone.
func (s *stage) remains(ctx context.Context) (left []string, err error) {
	for until := history.Now() + settling; ; {
		left, err = s.inPostgres(ctx)
		if err != nil {
			return nil, err
		}
		keys, err := s.inRedis(ctx)
		if err != nil {
			return nil, err
		}
		left = append(left, keys...)
		if len(left) == 0 || history.Now() > until {
			return left, nil
		}
		if err := wait.For(ctx, settling/100); err != nil {
			return nil, err
		}
	}
}

// inPostgres returns sessions of workers, with their locks.
func (s *stage) inPostgres(ctx context.Context) (left []string, err error) {
	var sessions, locks int
	err = s.scene.Pool.QueryRow(ctx, `
		SELECT count(DISTINCT a.pid), count(l.pid) FROM pg_stat_activity a LEFT JOIN pg_locks l ON l.pid = a.pid
		WHERE a.datname = current_database() AND a.application_name LIKE 'worker %'`).Scan(&sessions, &locks)
	if err != nil {
		return nil, fmt.Errorf("look for sessions: %w", err)
	}
	if sessions > 0 {
		left = append(left, fmt.Sprintf("%d sessions in PostgreSQL, with %d locks", sessions, locks))
	}
	return left, nil
}

// inRedis returns the keys of leases and queues. Counters are meant to stay.
func (s *stage) inRedis(ctx context.Context) (left []string, err error) {
	for i, server := range s.scene.Redis {
		if err := onRedis(server, func(c *redis.Client) error {
			keys, err := c.Keys(ctx, "*").Result()
			for _, key := range keys {
				if !strings.HasSuffix(key, ":token") {
					left = append(left, fmt.Sprintf("key %s in Redis %d", key, i))
				}
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return left, nil
}
