package measure

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
)

// tripCount is how often connections began to send after they had received. A conversation of one question and one
// answer is one trip, however many writes it takes.
type tripCount struct{ trips atomic.Int64 }

func (c *tripCount) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, count: c}, nil
}

type countedConn struct {
	net.Conn
	count   *tripCount
	sending atomic.Bool
}

func (c *countedConn) Write(p []byte) (int, error) {
	if !c.sending.Swap(true) {
		c.count.trips.Add(1)
	}
	return c.Conn.Write(p)
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sending.Store(false)
	}
	return n, err
}

// trips counts how often one operation of a mode asks each server, while nothing else runs. Every server of a quorum
// counts, although they are asked at the same time.
func (m *measurer) trips(ctx context.Context, name string) error {
	var postgres, redis tripCount
	opened, err := m.open(ctx, name, 0, func(c *mode.Config) {
		c.DialPostgres, c.DialRedis = postgres.dial, redis.dial
	})
	if err != nil {
		return err
	}
	defer opened.Close()
	next := apart(name, 0)
	// Connections are opened and statements prepared on them, and what is only there once is made: the counters of leases.
	for range rowsOfWorker {
		if err := m.persist(ctx, opened, next()); err != nil {
			return err
		}
	}
	beforePostgres, beforeRedis := postgres.trips.Load(), redis.trips.Load()
	for range m.plan.trips {
		if err := m.persist(ctx, opened, next()); err != nil {
			return err
		}
	}
	f := m.figures[name]
	f.RoundTripsPostgres = float64(postgres.trips.Load()-beforePostgres) / float64(m.plan.trips)
	f.RoundTripsRedis = float64(redis.trips.Load()-beforeRedis) / float64(m.plan.trips)
	return nil
}
