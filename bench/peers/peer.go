package peers

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// TTL is how long a lock lasts without renewal, wherever that can be set.
	TTL = 30 * time.Second
	// PollEvery is the pause of those that poll.
	PollEvery = 5 * time.Millisecond
)

// Unlock gives a lock back. It is called once.
type Unlock func(ctx context.Context) error

// Client is what one goroutine locks with. Only that one uses it.
type Client interface {
	// Lock waits until it has the lock of a name.
	Lock(ctx context.Context, name string) (Unlock, error)
	// Close closes connections; the first Close closes shared ones. No lock may be held then.
	Close() error
}

// Peer is one lock library.
type Peer struct {
	Name string
	// Open makes what one process would that locks in so many goroutines: a client for each, all
	// over one pool of connections, as far as the library can share one.
	Open func(ctx context.Context, goroutines int) ([]Client, error)
}

// Servers are what the locks live on.
type Servers struct {
	// PostgresURL and RedisURL lead to one server each, which all clients share.
	PostgresURL, RedisURL string
	// NodeURLs lead to independent Redis servers, for a quorum.
	NodeURLs []string
	// Prefix begins every name, so that nothing of anybody else's is touched.
	Prefix string
}

// Single returns those that lock on a single server, the baseline first.
func Single(s Servers) []Peer {
	return []Peer{
		{Name: Advisory, Open: s.openAdvisory},
		{Name: Rueidislock, Open: s.openRueidislock},
		{Name: Redislock, Open: s.openRedislock},
		{Name: Redsync, Open: s.openRedsync},
		{Name: Fencepost, Open: s.openFencepost},
	}
}

// The names of the peers on a single server.
const (
	Advisory    = "pg_advisory_lock (pgx)"
	Rueidislock = "rueidislock"
	Redislock   = "redislock"
	Redsync     = "redsync"
	Fencepost   = "lease.Manager"
)

// newRedis makes a client with connections of its own and go-redis's default settings.
func newRedis(url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("the Redis address cannot be parsed") // the parser's words may hold a password
	}
	return redis.NewClient(opts), nil
}

// repeat makes n clients.
func repeat(n int, client func() Client) []Client {
	clients := make([]Client, n)
	for i := range clients {
		clients[i] = client()
	}
	return clients
}

// newRedises makes a client for each address, or none.
func newRedises(urls []string) ([]*redis.Client, error) {
	clients := make([]*redis.Client, len(urls))
	for i, url := range urls {
		client, err := newRedis(url)
		if err != nil {
			return nil, errors.Join(err, closeAll(clients[:i]))
		}
		clients[i] = client
	}
	return clients, nil
}

func closeAll(clients []*redis.Client) error {
	errs := make([]error, len(clients))
	for i, client := range clients {
		errs[i] = client.Close()
	}
	return errors.Join(errs...)
}
