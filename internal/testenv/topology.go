package testenv

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/services"
)

// Cluster starts a Redis Cluster of six nodes that no other test uses, and closes it when the test ends. It uses the
// installed redis-server whatever FENCEPOST_SERVICES says.
func Cluster(tb testing.TB, opts *services.ClusterOptions) *services.Cluster {
	tb.Helper()
	return topology(tb, func(ctx context.Context) (*services.Cluster, error) {
		return services.StartCluster(ctx, opts)
	})
}

// Sentinel is Cluster for a primary, a replica and three sentinels.
func Sentinel(tb testing.TB, opts *services.SentinelOptions) *services.Sentinel {
	tb.Helper()
	return topology(tb, func(ctx context.Context) (*services.Sentinel, error) {
		return services.StartSentinel(ctx, opts)
	})
}

// PostgresPair is Cluster for a PostgreSQL primary and its streaming standby, from the installed programs.
func PostgresPair(tb testing.TB, args ...string) *services.PostgresPair {
	tb.Helper()
	return topology(tb, func(ctx context.Context) (*services.PostgresPair, error) {
		return services.StartPostgresPair(ctx, args...)
	})
}

// PgBouncer starts a pooler in front of the server of databaseURL, and closes it when the test ends.
func PgBouncer(tb testing.TB, databaseURL string, opts *services.PgBouncerOptions) *services.PgBouncer {
	tb.Helper()
	return topology(tb, func(ctx context.Context) (*services.PgBouncer, error) {
		return services.StartPgBouncer(ctx, databaseURL, opts)
	})
}

// Pgpool starts a Pgpool-II in front of a pair and closes it when the test ends. Pgpool-II sends reads to the standby.
func Pgpool(tb testing.TB, pair *services.PostgresPair, database string) *services.Pgpool {
	tb.Helper()
	return topology(
		tb,
		func(ctx context.Context) (*services.Pgpool, error) { return services.StartPgpool(ctx, pair, database) },
	)
}

// Valkey starts a Valkey server that no other test uses. If none is installed it returns nil: it is an additional
// server to try, and no build depends on it.
func Valkey(tb testing.TB) *services.Redis {
	tb.Helper()
	r, err := services.StartProgram(tb.Context(), "valkey-server")
	if errors.Is(err, services.ErrNotInstalled) {
		tb.Log("there is no valkey-server in PATH")
		return nil
	}
	return topology(tb, func(context.Context) (*services.Redis, error) { return r, err })
}

// RedisAtLeast reports whether a server has a version such as "6.2", or a later one. Valkey counts as the Redis version
// that it reports.
func RedisAtLeast(tb testing.TB, client redis.UniversalClient, version string) bool {
	tb.Helper()
	info, err := client.InfoMap(tb.Context(), "server").Result()
	if err != nil {
		tb.Fatal(err)
	}
	number := func(text string) (n int) {
		var major, minor int
		if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
			tb.Fatalf("%q is no version of Redis: %v", text, err)
		}
		return major*1000 + minor
	}
	return number(info["Server"]["redis_version"]) >= number(version)
}

// topology starts servers and closes them when the test ends.
func topology[T interface{ Close() error }](tb testing.TB, start func(context.Context) (T, error)) T {
	tb.Helper()
	shared.count(tb)
	servers, err := start(tb.Context())
	if errors.Is(err, services.ErrNotInstalled) {
		Lacking(tb, err, services.WayLocal)
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

// ClusterClient returns a client of a cluster, closed when the test ends. Edit, if not nil, may change its options.
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

// SentinelClient returns a client that asks sentinels for the primary, closed when the test ends. Edit, if not nil, may
// change its options.
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
