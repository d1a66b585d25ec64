package mode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// The modes.
const (
	None            = report.ModeNone            // nothing: the last write wins
	RedisLock       = report.ModeRedisLock       // SET NX PX and compare-and-delete, no fence
	RedisLease      = report.ModeRedisLease      // fencepost: a lease and the fence
	RedisQuorum     = report.ModeRedisQuorum     // fencepost over three or more independent Redis servers
	AdvisoryXact    = report.ModeAdvisoryXact    // fencepost over an advisory lock of the transaction
	AdvisorySession = report.ModeAdvisorySession // fencepost over an advisory lock of a session
	ForUpdate       = report.ModeForUpdate       // SELECT ... FOR UPDATE
	Optimistic      = report.ModeOptimistic      // a version column
	Unique          = report.ModeUnique          // a unique constraint
)

// Names returns the modes, in the order of reports.
func Names() []string { return report.Modes() }

// UsesRedis tells whether a mode sends anything to Redis.
func UsesRedis(name string) bool {
	return slices.Contains([]string{RedisLock, RedisLease, RedisQuorum}, name)
}

// holdsLeases tells whether a mode holds a lease that is its process's, over reading and writing.
func holdsLeases(name string) bool {
	return slices.Contains([]string{RedisLease, RedisQuorum, AdvisorySession}, name)
}

// ReadsClock reports whether a mode reads Config.Clock while it works. Only modes that measure a lease's time do.
func ReadsClock(name string) bool { return holdsLeases(name) }

// HoldsUp reports whether a mode keeps others from its rows for as long as a holder's transaction is open, however long
// that is. In the other modes another worker continues, at once or after a TTL; with AdvisorySession from PostgreSQL 14
// on.
func HoldsUp(name string) bool { return name == ForUpdate || name == AdvisoryXact }

// Config is what a mode works with.
type Config struct {
	// PostgresURL leads to a database with fencepost's migrations and the tables of package work.
	PostgresURL string
	// RedisURLs are one server, or for RedisQuorum an odd number of at least three. Modes that use no Redis need none.
	RedisURLs []string
	// TTL is that of leases and locks.
	TTL time.Duration
	// Namespace and Label are the Store's. The keys of RedisLock begin with the namespace as well.
	Namespace, Label string
	// Connections is how many the pool may have. Default 4.
	Connections int32
	// Clock is this process's wall clock. Default time.Now.
	Clock func() time.Time
	// Unguarded makes RedisLease, RedisQuorum and AdvisorySession write through a plain transaction: PostgreSQL refuses
	// nothing, and only the holder checks its lease before it commits. Unwatched, which requires Unguarded, removes
	// that check too. Both are for tests, which count what is then lost. Other modes refuse them.
	Unguarded, Unwatched bool
	// DialPostgres and DialRedis replace how connections are made. Default: as the clients do.
	DialPostgres, DialRedis func(ctx context.Context, network, address string) (net.Conn, error)
}

// Mode does operations in one way. It is safe for concurrent use.
type Mode interface {
	// Run makes one attempt at an operation. nil means that it is committed, or had been done before. OutcomeOf
	// explains an error. ctx bounds the call, but not its releases.
	Run(ctx context.Context, op *work.Operation) error
	// ConnectionsHeld returns how many connections to PostgreSQL are in use right now.
	ConnectionsHeld() int
	// Close closes all connections. No call may be under way.
	Close()
}

// Open makes a mode. ctx bounds what it asks of PostgreSQL, if anything. A server that does not answer causes an error
// in Run at the latest. Open returns errors of the config, and of servers that it asks.
func Open(ctx context.Context, name string, c Config) (Mode, error) {
	if (c.Unguarded || c.Unwatched) && !holdsLeases(name) {
		return nil, fmt.Errorf("mode %s has no guard to do without", name)
	}
	if c.Unwatched && !c.Unguarded {
		return nil, errors.New("the guard looks at the lease")
	}
	s, err := connect(ctx, name, c)
	if err != nil {
		return nil, err
	}
	m, err := open(name, c, s)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open mode %s: %w", name, err)
	}
	return m, nil
}

func open(name string, c Config, s *servers) (Mode, error) {
	switch name {
	case None:
		return &none{s}, nil
	case RedisLock:
		return &redisLock{servers: s, prefix: c.Namespace + ":lock:", ttl: c.TTL}, nil
	case RedisLease, RedisQuorum, AdvisorySession:
		store, err := newStore(name, c, s)
		return &fenced{servers: s, store: store, unguarded: c.Unguarded, unwatched: c.Unwatched}, err
	case AdvisoryXact:
		locks, err := fencepost.NewAdvisoryTx(s.pool, &fencepost.AdvisoryTxOptions{
			Namespace: c.Namespace, MaxIdle: max(c.TTL, 30*time.Second), Label: c.Label,
		})
		return &inOneTransaction{servers: s, locks: locks}, err
	case ForUpdate:
		return &forUpdate{s}, nil
	case Optimistic:
		return &optimistic{s}, nil
	case Unique:
		return &unique{s}, nil
	}
	return nil, errors.New("there is no such mode")
}
