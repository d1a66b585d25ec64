package peers

import (
	"context"
	"sync"

	"github.com/bsm/redislock"
)

// polled locks by redislock, which tries again after each pause.
type polled struct {
	locker *redislock.Client
	prefix string
	close  func() error
}

func (s Servers) openRedislock(_ context.Context, goroutines int) ([]Client, error) {
	client, err := newRedis(s.RedisURL)
	if err != nil {
		return nil, err
	}
	locker, once := redislock.New(client), sync.OnceValue(client.Close)
	return repeat(goroutines, func() Client { return &polled{locker: locker, prefix: s.Prefix, close: once} }), nil
}

func (p *polled) Lock(ctx context.Context, name string) (Unlock, error) {
	lock, err := p.locker.Obtain(
		ctx,
		p.prefix+":"+name,
		TTL,
		&redislock.Options{RetryStrategy: redislock.LinearBackoff(PollEvery)},
	)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

func (p *polled) Close() error { return p.close() }
