package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// restartEmpty kills Redis while the victim is between reading and writing, and starts it again empty. Of a quorum it
// kills all servers at once, which is more than a quorum tolerates. The victim continues when others have taken over.
// The proof is that there were keys before, that another process answers afterwards, and that the victim was overtaken.
func restartEmpty(ctx context.Context, s *Scene) error {
	e, err := s.announced(ctx)
	if err != nil {
		return err
	}
	before, keys, err := s.runs(ctx)
	if err != nil {
		return err
	}
	if keys == 0 {
		return fmt.Errorf("%w: Redis knew of no lease", ErrMissed)
	}
	if err := eachServer(s.Servers, func(r *services.Redis) error {
		if err := r.Kill(ctx); err != nil {
			return err
		}
		return r.StartEmpty(ctx)
	}); err != nil {
		return err
	}
	after, _, err := s.runs(ctx)
	if err != nil {
		return err
	}
	for i := range before {
		if before[i] == after[i] {
			return fmt.Errorf("%w: Redis server %d is the one it was", ErrMissed, i)
		}
	}
	if err := s.overtaken(ctx, e, 0); err != nil {
		return err
	}
	return s.goOn()
}

// eachServer calls fn for all servers at once.
func eachServer(servers []*services.Redis, fn func(*services.Redis) error) error {
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() { errs[i] = fn(server) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// runs returns what tells the processes of the servers apart, and how many keys they have in all.
func (s *Scene) runs(ctx context.Context) (ids []string, keys int64, err error) {
	for _, server := range s.Servers {
		err = ask(server.URL(), func(c *redis.Client) error {
			info, err := c.InfoMap(ctx, "server").Result()
			ids = append(ids, info["Server"]["run_id"])
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		n, err := size(ctx, server.URL())
		if err != nil {
			return nil, 0, err
		}
		keys += n
	}
	return ids, keys, nil
}

// holdBack makes the replica lag from now on, before anybody has a lease.
func holdBack(ctx context.Context, s *Scene) error {
	if s.Pair == nil {
		return nil
	}
	return s.Pair.HoldBack(ctx)
}

// failOver kills the primary while the victim is between reading and writing, and promotes the replica, which lags and
// knows nothing of the lease. All clients are directed to it. The victim continues when others have taken over. The
// proof is that the primary had keys that the replica did not have, and that the victim was overtaken. A quorum has no
// replicas: it loses one of its servers for good. Then nobody can take over, and the proof is that the server is dead.
func failOver(ctx context.Context, s *Scene) error {
	e, err := s.announced(ctx)
	if err != nil {
		return err
	}
	if s.Pair == nil {
		// Nobody is expected to take over, and the victim's work need not take long.
		return errors.Join(s.Servers[0].Kill(ctx), s.overtakenPerhaps(ctx, e, s.TTL/2), s.goOn())
	}
	lost, err := size(ctx, s.Pair.Primary.URL())
	if err != nil {
		return err
	}
	kept, err := size(ctx, s.Pair.Replica.URL())
	if err != nil {
		return err
	}
	if lost == 0 || kept > 0 {
		return fmt.Errorf("%w: the primary had %d keys and the replica %d", ErrMissed, lost, kept)
	}
	if err := errors.Join(s.Pair.Primary.Kill(ctx), s.Pair.Promote(ctx)); err != nil {
		return err
	}
	for _, proxies := range s.Redis {
		proxies[0].Redirect(s.Pair.Replica.Addr())
	}
	if err := s.overtaken(ctx, e, 0); err != nil {
		return err
	}
	return s.goOn()
}

// size returns how many keys a server has.
func size(ctx context.Context, url string) (keys int64, err error) {
	err = ask(url, func(c *redis.Client) error {
		keys, err = c.DBSize(ctx).Result()
		return err
	})
	return keys, err
}

// ask calls question with a client of the server that url names.
func ask(url string, question func(*redis.Client) error) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return errors.New("the Redis address is not valid") // the cause quotes it
	}
	o.PoolSize, o.ContextTimeoutEnabled, o.DisableIdentity = 1, true, true
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }() // nothing is left to be lost
	if err := question(c); err != nil {
		return fmt.Errorf("ask Redis: %w", err)
	}
	return nil
}
