package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// cleanUpPatience bounds clean-up, which runs even if the run was interrupted.
const cleanUpPatience = 30 * time.Second

// detached returns a context for that.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
}

// server is a Redis, or several, that a cell has for itself and gives back.
type server interface {
	comparable
	Close() error
}

// shelf keeps servers of one kind for the next cell: starting one takes longer than many a cell. It is safe for
// concurrent use.
type shelf[T server] struct {
	start func(context.Context) (T, error)
	// restore makes a server as good as new.
	restore func(context.Context, T) error

	mu   sync.Mutex
	free []T
	all  []T
}

// take returns a server that nothing else uses, and that has no data.
func (s *shelf[T]) take(ctx context.Context) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		one := s.free[n-1]
		s.free = s.free[:n-1]
		return one, nil
	}
	// Nobody waits for long behind this: there are only as many as cells run at the same time.
	one, err := s.start(ctx)
	if err == nil {
		s.all = append(s.all, one)
	}
	return one, err
}

// putBack takes a server back, whatever has happened to it. A server that cannot be restored is not used again.
func (s *shelf[T]) putBack(ctx context.Context, one T) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := s.restore(ctx, one); err != nil {
		return fmt.Errorf("restore a Redis: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, one)
	return nil
}

// close stops all servers.
func (s *shelf[T]) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(s.all))
	var closing sync.WaitGroup
	for i, one := range s.all {
		closing.Go(func() { errs[i] = one.Close() })
	}
	closing.Wait()
	s.all, s.free = nil, nil
	return errors.Join(errs...)
}

func singles() *shelf[*services.Redis] {
	return &shelf[*services.Redis]{
		start: func(ctx context.Context) (*services.Redis, error) { return services.StartRedis(ctx) },
		restore: func(ctx context.Context, r *services.Redis) error {
			flushed := flush(ctx, r.URL())
			if flushed == nil {
				return nil
			}
			// A fault has killed it.
			if err := r.StartEmpty(ctx); err != nil {
				return errors.Join(flushed, err)
			}
			return nil
		},
	}
}

func pairs() *shelf[*services.Pair] {
	return &shelf[*services.Pair]{
		start: func(ctx context.Context) (*services.Pair, error) { return services.StartPair(ctx) },
		restore: func(ctx context.Context, p *services.Pair) error {
			killed := p.Primary.Kill(ctx) // fails if a fault has done it already
			if err := p.Restore(ctx); err != nil {
				return errors.Join(killed, err)
			}
			return nil
		},
	}
}

// tryPair starts a first pair, to find out whether a pair is possible here.
func tryPair(ctx context.Context, pairs *shelf[*services.Pair]) error {
	pair, err := pairs.take(ctx)
	if err != nil {
		return err
	}
	return pairs.putBack(ctx, pair)
}

func flush(ctx context.Context, url string) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return errors.New("the Redis address is not valid") // the cause quotes it
	}
	o.MaxRetries, o.DialerRetries, o.PoolSize, o.ContextTimeoutEnabled = -1, 1, 1, true
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }() // nothing is left to be lost
	return c.FlushAll(ctx).Err()
}
