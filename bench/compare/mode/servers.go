package mode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/fence"
)

const (
	defaultConnections = 4
	// redisPatience is how long the Redis client waits for a server, each time.
	redisPatience = time.Second
)

// servers are the connections of one mode.
type servers struct {
	pool  *pgxpool.Pool
	open  atomic.Int64 // connections to PostgreSQL, those that are not the pool's included
	redis []redis.UniversalClient
}

func connect(ctx context.Context, name string, c Config) (*servers, error) {
	config, err := pgxpool.ParseConfig(c.PostgresURL)
	if err != nil {
		return nil, errors.New("the PostgreSQL address is not valid") // the cause quotes it
	}
	s := &servers{}
	config.MaxConns = defaultConnections
	if c.Connections > 0 {
		config.MaxConns = c.Connections
	}
	fence.Notices(config.ConnConfig)
	dial := config.ConnConfig.DialFunc
	if c.DialPostgres != nil {
		dial = c.DialPostgres
	}
	config.ConnConfig.DialFunc = s.counted(dial)
	if UsesRedis(name) {
		if s.redis, err = redisClients(c); err != nil {
			return nil, err
		}
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		s.closeRedis()
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	return s, nil
}

func redisClients(c Config) ([]redis.UniversalClient, error) {
	var clients []redis.UniversalClient
	for _, url := range c.RedisURLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, errors.New("the Redis address is not valid") // as above
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisPatience, redisPatience, redisPatience
		o.ContextTimeoutEnabled = true
		o.Dialer = c.DialRedis
		clients = append(clients, redis.NewClient(o))
	}
	if len(clients) == 0 {
		return nil, errors.New("the mode needs a Redis")
	}
	return clients, nil
}

// counted keeps count of the connections that are open.
func (s *servers) counted(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.open.Add(1)
		return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { s.open.Add(-1) })}, nil
	}
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// ConnectionsHeld returns how many connections are open and not idle in the pool.
func (s *servers) ConnectionsHeld() int {
	return max(int(s.open.Load())-int(s.pool.Stat().IdleConns()), 0)
}

// Close closes all connections.
func (s *servers) Close() {
	s.pool.Close()
	s.closeRedis()
}

func (s *servers) closeRedis() {
	for _, client := range s.redis {
		_ = client.Close() // nothing is under way
	}
}
