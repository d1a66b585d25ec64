package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// leaser is what a lease.Manager and a lease.Quorum have in common.
type leaser interface {
	Acquire(ctx context.Context, resource string, ttl time.Duration, opts *lease.AcquireOptions) (*lease.Lease, error)
}

// leased locks by this library.
type leased struct {
	leaser leaser
	last   map[string]token.Token // by name: what this client was granted last
	close  func() error
}

func (s Servers) openFencepost(_ context.Context, goroutines int) ([]Client, error) {
	client, err := newRedis(s.RedisURL)
	if err != nil {
		return nil, err
	}
	manager, err := lease.NewManager(client, &lease.Options{Prefix: s.Prefix})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return repeatLeased(goroutines, manager, client.Close), nil
}

func repeatLeased(n int, l leaser, closeAll func() error) []Client {
	once := sync.OnceValue(closeAll)
	return repeat(n, func() Client { return &leased{leaser: l, last: make(map[string]token.Token), close: once} })
}

// Lock also sees that there is a token, and that it rises: that is part of what is measured.
func (l *leased) Lock(ctx context.Context, name string) (Unlock, error) {
	held, err := l.leaser.Acquire(ctx, name, TTL, nil)
	if err != nil {
		return nil, err
	}
	tok := held.Token()
	if tok <= l.last[name] {
		return nil, errors.Join(fmt.Errorf("token %d after token %d", tok, l.last[name]), held.Release(ctx))
	}
	l.last[name] = tok
	return held.Release, nil
}

func (l *leased) Close() error { return l.close() }
