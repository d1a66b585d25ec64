package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/internal/services"
)

func redisName(n int) string { return fmt.Sprintf("Redis %d", n) }

func flush(ctx context.Context, s *Stage) (string, error) {
	n := s.server()
	return redisName(n), ask(s.Redis[n], func(c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// spoil removes keys, and sets counters back or forward.
func spoil(ctx context.Context, s *Stage) (string, error) {
	n := s.server()
	spoilt := 0
	err := ask(s.Redis[n], func(c *redis.Client) error {
		keys, err := c.Keys(ctx, "*").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if s.Random.IntN(3) > 0 {
				continue
			}
			spoilt++
			if err := s.spoilKey(ctx, c, key); err != nil {
				return err
			}
		}
		return nil
	})
	return fmt.Sprintf("%d keys of %s", spoilt, redisName(n)), err
}

func (s *Stage) spoilKey(ctx context.Context, c *redis.Client, key string) error {
	count, err := c.Get(ctx, key).Int64()
	if err != nil { // a lease, a queue, or a key that has expired
		return c.Del(ctx, key).Err()
	}
	to := max(1, count+s.Random.Int64N(40)-30)
	return c.Set(ctx, key, strconv.FormatInt(to, 10), redis.KeepTTL).Err()
}

// evict gives a server less memory than it has in use, so that it removes any keys it has.
func evict(ctx context.Context, s *Stage) (string, error) {
	n, d := s.server(), s.some(0.05, 0.3)
	set := func(policy, memory string) func() error {
		ctx := context.WithoutCancel(ctx)
		return func() error {
			return ask(s.Redis[n], func(c *redis.Client) error {
				return errors.Join(
					c.ConfigSet(ctx, "maxmemory-policy", policy).Err(), c.ConfigSet(ctx, "maxmemory", memory).Err())
			})
		}
	}
	return redisName(n), forAWhile(ctx, d, set("allkeys-random", "1"), set("noeviction", "0"))
}

func hangRedis(ctx context.Context, s *Stage) (string, error) {
	n, d := s.server(), s.some(0.2, 2)
	r := s.Redis[n]
	return redisName(n), forAWhile(ctx, d,
		func() error { return r.Pause(ctx) },
		func() error { return r.Resume(context.WithoutCancel(ctx)) })
}

// restartRedis kills a server and starts it with the data that it had.
func restartRedis(ctx context.Context, s *Stage) (string, error) {
	n, d := s.server(), s.some(0, 1)
	r := s.Redis[n]
	return redisName(n), forAWhile(ctx, d,
		func() error { return r.Kill(ctx) },
		func() error { return r.Start(context.WithoutCancel(ctx)) })
}

func emptyRedis(ctx context.Context, s *Stage) (string, error) {
	n, d := s.server(), s.some(0, 1)
	r := s.Redis[n]
	return redisName(n), forAWhile(ctx, d,
		func() error { return r.Kill(ctx) },
		func() error { return r.StartEmpty(context.WithoutCancel(ctx)) })
}

// entry is a key with what it contains, as DUMP tells.
type entry struct {
	key, value string
	left       time.Duration
}

// dump returns everything that a server has.
func dump(ctx context.Context, r *services.Redis) (all []entry, err error) {
	err = ask(r, func(c *redis.Client) error {
		keys, err := c.Keys(ctx, "*").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			value, err := c.Dump(ctx, key).Result()
			if errors.Is(err, redis.Nil) {
				continue // it has expired
			}
			left, err2 := c.PTTL(ctx, key).Result()
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			all = append(all, entry{key, value, max(left, 0)}) // 0: it does not expire
		}
		return nil
	})
	return all, err
}

// restore makes a server have that, and nothing else.
func restore(ctx context.Context, r *services.Redis, all []entry) error {
	return ask(r, func(c *redis.Client) error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.FlushAll(ctx)
			for _, e := range all {
				p.RestoreReplace(ctx, e.key, e.left, e.value)
			}
			return nil
		})
		return err
	})
}

// restoreOlder takes a server back to what it had a while ago. Leases last as long again as they did then.
func restoreOlder(ctx context.Context, s *Stage) (string, error) {
	n, d := s.server(), s.some(0.2, 2)
	was, err := dump(ctx, s.Redis[n])
	if err != nil {
		return redisName(n), err
	}
	return redisName(n), errors.Join(wait.For(ctx, d), restore(context.WithoutCancel(ctx), s.Redis[n], was))
}

// failOver leads all clients to another server, whose copy of the data is a while old.
func failOver(ctx context.Context, s *Stage) (string, error) {
	d := s.some(0.2, 2)
	was, err := dump(ctx, s.Redis[0])
	if err != nil {
		return "", err
	}
	if err := errors.Join(wait.For(ctx, d), restore(context.WithoutCancel(ctx), s.Spare, was)); err != nil {
		return "", err
	}
	s.lead(len(s.Workers))
	return "to the other Redis", nil
}

// split leads some workers to another server, which has a copy of the data, and the others a while later.
func split(ctx context.Context, s *Stage) (string, error) {
	first, d := 1+s.Random.IntN(len(s.Workers)), s.some(0.5, 2.5)
	was, err := dump(ctx, s.Redis[0])
	if err != nil {
		return "", err
	}
	if err := restore(ctx, s.Spare, was); err != nil {
		return "", err
	}
	for _, proxies := range s.ToRedis[:first] {
		proxies[0].Redirect(s.Spare.Addr())
	}
	err = wait.For(ctx, d)
	s.lead(len(s.Workers))
	return fmt.Sprintf("%d workers first", first), err
}

// lead leads workers to the spare server, which takes the place of the first.
func (s *Stage) lead(workers int) {
	for _, proxies := range s.ToRedis[:workers] {
		proxies[0].Redirect(s.Spare.Addr())
	}
	s.Redis[0], s.Spare = s.Spare, s.Redis[0]
}
