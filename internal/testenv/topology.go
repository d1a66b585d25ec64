package testenv

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// Cluster starts a Redis Cluster of six nodes that no other test uses, from the installed redis-server
// whatever FENCEPOST_SERVICES says, and closes it when the test ends.
func Cluster(tb testing.TB, opts *services.ClusterOptions) *services.Cluster {
	tb.Helper()
	return topology(tb, func(ctx context.Context) (*services.Cluster, error) { return services.StartCluster(ctx, opts) })
}

// Sentinel is Cluster for a primary, a replica and three sentinels.
func Sentinel(tb testing.TB, opts *services.SentinelOptions) *services.Sentinel {
	tb.Helper()
	return topology(tb, func(ctx context.Context) (*services.Sentinel, error) { return services.StartSentinel(ctx, opts) })
}

// Valkey starts a Valkey server that no other test uses. Where none is installed it returns nil: it is a
// further server to try, and no build depends on it.
func Valkey(tb testing.TB) *services.Redis {
	tb.Helper()
	r, err := services.StartProgram(tb.Context(), "valkey-server")
	if errors.Is(err, services.ErrNotInstalled) {
		tb.Log("there is no valkey-server in PATH")
		return nil
	}
	return topology(tb, func(context.Context) (*services.Redis, error) { return r, err })
}

// topology starts servers that are closed when the test ends.
func topology[T interface{ Close() error }](tb testing.TB, start func(context.Context) (T, error)) T {
	tb.Helper()
	shared.count(tb)
	servers, err := start(tb.Context())
	if errors.Is(err, services.ErrNotInstalled) {
		missing(tb, err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := servers.Close(); err != nil {
			tb.Errorf("closing the servers: %v", err)
		}
	})
	return servers
}

// ClusterClient returns a client of a cluster, closed when the test ends. Edit, where it is not nil, may
// change its options.
func ClusterClient(tb testing.TB, c *services.Cluster, edit func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	o := &redis.ClusterOptions{Addrs: c.Addrs()}
	if edit != nil {
		edit(o)
	}
	client := redis.NewClusterClient(o)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("closing the cluster client: %v", err)
		}
	})
	return client
}

// SentinelClient returns a client that asks sentinels for the primary, closed when the test ends. Edit, where
// it is not nil, may change its options.
func SentinelClient(tb testing.TB, s *services.Sentinel, edit func(*redis.FailoverOptions)) *redis.Client {
	tb.Helper()
	o := &redis.FailoverOptions{MasterName: s.Master(), SentinelAddrs: s.Addrs()}
	if edit != nil {
		edit(o)
	}
	client := redis.NewFailoverClient(o)
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Errorf("closing the sentinel client: %v", err)
		}
	})
	return client
}
