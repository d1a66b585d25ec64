package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
)

// Stores returns the lease alone, the baseline, and the lease with its claim in PostgreSQL. They need a database with
// fencepost's migrations.
func Stores(s Servers) []Peer {
	return []Peer{{Name: Fencepost, Open: s.openFencepost}, {Name: Store, Open: s.openStore}}
}

// Store is the name of the lease with its claim.
const Store = "Store, claim included"

// stored locks by a store's leases.
type stored struct {
	store *fencepost.Store
	close func() error
}

func (s Servers) openStore(ctx context.Context, goroutines int) ([]Client, error) {
	config, err := pgxpool.ParseConfig(s.PostgresURL)
	if err != nil {
		return nil, errors.New("the PostgreSQL address cannot be parsed") // the parser's words may hold a password
	}
	config.MaxConns = int32(goroutines)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	client, err := newRedis(s.RedisURL)
	if err != nil {
		pool.Close()
		return nil, err
	}
	once := sync.OnceValue(func() error {
		pool.Close()
		return client.Close()
	})
	store, err := fencepost.New(pool, client, &fencepost.Options{Namespace: s.Prefix})
	if err != nil {
		return nil, errors.Join(err, once())
	}
	return repeat(goroutines, func() Client { return &stored{store: store, close: once} }), nil
}

func (s *stored) Lock(ctx context.Context, name string) (Unlock, error) {
	held, err := s.store.Acquire(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (s *stored) Close() error { return s.close() }
