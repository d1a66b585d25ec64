package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/library"
	"github.com/fencepost-pg/fencepost/bench/relay"
)

// withFar runs fn with the servers and with the longer way to them, over a relay for each.
func withFar(
	ctx context.Context,
	near library.Servers,
	redisURL string,
	fn func(context.Context, library.Servers) error,
) (err error) {
	config := near.Pool.Config()
	toPostgres, err := farther(net.JoinHostPort(config.ConnConfig.Host, strconv.Itoa(int(config.ConnConfig.Port))))
	if err != nil {
		return fmt.Errorf("relay to PostgreSQL: %w", err)
	}
	defer toPostgres.Close()
	config.ConnConfig.DialFunc = dialTo(toPostgres)
	pool, err := openPool(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	opts, err := redis.ParseURL(redisURL)
	if err != nil {
		return errors.New("the Redis address cannot be parsed") // the parser's words may hold a password
	}
	toRedis, err := farther(opts.Addr)
	if err != nil {
		return fmt.Errorf("relay to Redis: %w", err)
	}
	defer toRedis.Close()
	opts.Addr = toRedis.Addr()
	client := redis.NewClient(opts)
	defer func() { err = errors.Join(err, client.Close()) }()
	near.Far = &library.Servers{
		Pool: pool, Redis: client, Name: near.Name + "-far", Schema: near.Schema + "_far",
	}
	return fn(ctx, near)
}

// farther starts a relay: half of what a round trip is to take longer is added to each of its directions.
func farther(address string) (*relay.Relay, error) {
	if strings.HasPrefix(address, "/") {
		return nil, errors.New("the way to a Unix socket cannot be made longer: name the server by host and port")
	}
	return relay.Start(address, library.FarBy/2)
}

// dialTo dials the relay instead of the address that a client asks for.
func dialTo(r *relay.Relay) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", r.Addr())
	}
}
