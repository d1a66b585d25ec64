package peers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
)

// advisory locks by pg_advisory_lock, which blocks in the server: nothing polls, and the server hands
// the lock on in the order of the queue. It gives no token and lasts as long as the session.
type advisory struct {
	conn   *pgx.Conn
	prefix string
}

// openAdvisory gives each goroutine a connection: the lock belongs to the session.
func (s Servers) openAdvisory(ctx context.Context, goroutines int) ([]Client, error) {
	config, err := pgx.ParseConfig(s.PostgresURL)
	if err != nil {
		return nil, errors.New("the PostgreSQL address cannot be parsed") // the parser's words may hold a password
	}
	var clients []Client
	for range goroutines {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to PostgreSQL: %w", err), CloseAll(clients))
		}
		clients = append(clients, &advisory{conn: conn, prefix: s.Prefix})
	}
	return clients, nil
}

func (a *advisory) Lock(ctx context.Context, name string) (Unlock, error) {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(a.prefix + name)) // never fails
	key := int64(hash.Sum64())
	if _, err := a.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, key); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var held bool
		err := a.conn.QueryRow(ctx, `SELECT pg_advisory_unlock($1)`, key).Scan(&held)
		if err == nil && !held {
			err = errors.New("the lock was not held")
		}
		return err
	}, nil
}

func (a *advisory) Close() error { return a.conn.Close(context.Background()) }
