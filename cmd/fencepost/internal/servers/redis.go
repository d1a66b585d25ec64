package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// CheckRedis returns an error if an address cannot be read, or if their number fits neither one Redis nor a quorum. It
// sends nothing.
func CheckRedis(addresses []string) error {
	if n := len(addresses); n > 1 && n%2 == 0 {
		return fmt.Errorf("%d Redis addresses are no quorum: give one, or an odd number from three on", n)
	}
	for _, text := range addresses {
		if _, err := parseRedis(text); err != nil {
			return err
		}
	}
	return nil
}

// OpenRedis returns one client for each address: one for a single server, a primary behind sentinels or a cluster, or
// several for a quorum. Each server must answer; if one of a quorum does not, that is no error, as long as a majority
// does. The error matches ErrUnavailable then. ctx bounds the call.
func OpenRedis(ctx context.Context, addresses []string) ([]redis.UniversalClient, error) {
	clients := make([]redis.UniversalClient, 0, len(addresses))
	var silent error
	answered := 0
	for _, text := range addresses {
		a, err := parseRedis(text)
		if err != nil {
			return nil, errors.Join(err, CloseRedis(clients))
		}
		client, err := a.open(ctx)
		if err == nil {
			answered++
		}
		silent = errors.Join(silent, err)
		clients = append(clients, client)
	}
	if answered <= len(addresses)/2 {
		return nil, errors.Join(fmt.Errorf("%w: Redis: %w", token.ErrUnavailable, silent), CloseRedis(clients))
	}
	return clients, nil
}

// QuietRedis keeps the client library's own log off standard error, for a whole process. What it says is also in the
// errors that it returns, and there it would tear the page of a terminal.
func QuietRedis() { redis.SetLogger(silent{}) }

// silent is a logger of go-redis.
type silent struct{}

// Printf prints nothing.
func (silent) Printf(context.Context, string, ...any) {}

// CloseRedis closes clients.
func CloseRedis(clients []redis.UniversalClient) error {
	var err error
	for _, client := range clients {
		err = errors.Join(err, client.Close())
	}
	return err
}

// open returns a client of the kind that the server needs, also along with the error of a server that does not answer.
func (a address) open(ctx context.Context) (redis.UniversalClient, error) {
	switch a.kind {
	case sentinel:
		client := redis.NewFailoverClient(a.failover())
		return client, client.Ping(ctx).Err()
	case cluster:
		client := redis.NewClusterClient(a.cluster())
		return client, client.Ping(ctx).Err()
	case either:
	}
	single := redis.NewClient(a.options)
	if err := single.Ping(ctx).Err(); err != nil {
		return single, err
	}
	info, err := single.Info(ctx, "cluster").Result()
	if err != nil || !strings.Contains(info, "cluster_enabled:1") {
		return single, nil //nolint:nilerr // not everybody may ask
	}
	if err := single.Close(); err != nil {
		return single, err
	}
	return redis.NewClusterClient(a.cluster()), nil
}

// OpenSentinels returns clients of the sentinels that an address names, and the name of their primary; none for another
// kind of address. It sends nothing. The caller closes them.
func OpenSentinels(text string) (clients []*redis.SentinelClient, master string, err error) {
	a, err := parseRedis(text)
	if err != nil || a.kind != sentinel {
		return nil, "", err
	}
	for _, host := range a.hosts {
		clients = append(clients, redis.NewSentinelClient(&redis.Options{
			Addr: host, Username: a.user, Password: a.password, TLSConfig: a.options.TLSConfig,
			DialTimeout: a.options.DialTimeout, ReadTimeout: a.options.ReadTimeout, MaxRetries: -1,
		}))
	}
	return clients, a.master, nil
}
