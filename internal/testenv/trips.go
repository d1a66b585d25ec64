package testenv

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// CountedPool returns a pool with one connection to the database of another pool, and the number of its round trips:
// how often it began to send after it had received.
func CountedPool(tb testing.TB, of *pgxpool.Pool) (pool *pgxpool.Pool, trips *atomic.Int64) {
	tb.Helper()
	var sending atomic.Bool
	trips = new(atomic.Int64)
	config := of.Config()
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // a trip of its own
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return tripCounter{conn, &sending, trips}, err
	}
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool, trips
}

type tripCounter struct {
	net.Conn
	sending *atomic.Bool
	trips   *atomic.Int64
}

func (c tripCounter) Write(p []byte) (int, error) {
	if !c.sending.Swap(true) {
		c.trips.Add(1)
	}
	return c.Conn.Write(p)
}

func (c tripCounter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sending.Store(false)
	}
	return n, err
}
