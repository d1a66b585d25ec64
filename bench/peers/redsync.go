package peers

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// redlock locks by redsync, on one server or on several. It tries again after each pause.
type redlock struct {
	locker *redsync.Redsync
	prefix string
	close  func() error
}

func (s Servers) openRedsync(_ context.Context, goroutines int) ([]Client, error) {
	return s.newRedlocks([]string{s.RedisURL}, goroutines)
}

func (s Servers) openRedsyncOfAll(_ context.Context, goroutines int) ([]Client, error) {
	return s.newRedlocks(s.NodeURLs, goroutines)
}

func (s Servers) newRedlocks(urls []string, goroutines int) ([]Client, error) {
	clients, err := newRedises(urls)
	if err != nil {
		return nil, err
	}
	var all []pools.Pool
	for _, client := range clients {
		all = append(all, goredis.NewPool(client))
	}
	locker, once := redsync.New(all...), sync.OnceValue(func() error { return closeAll(clients) })
	return repeat(goroutines, func() Client { return &redlock{locker: locker, prefix: s.Prefix, close: once} }), nil
}

func (r *redlock) Lock(ctx context.Context, name string) (Unlock, error) {
	mutex := r.locker.NewMutex(r.prefix+":"+name,
		redsync.WithExpiry(TTL), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(PollEvery))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ok, err := mutex.UnlockContext(ctx)
		if err == nil && !ok {
			err = errors.New("the lock was not held")
		}
		return err
	}, nil
}

func (r *redlock) Close() error { return r.close() }
