package fencepost_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
)

// lateNetwork holds back the next message that contains a text, and delivers it later, as networks do.
type lateNetwork struct {
	text    []byte
	armed   atomic.Bool
	kept    chan struct{} // closed once the message is kept
	deliver chan struct{} // closed to deliver it
}

func (n *lateNetwork) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &lateConn{Conn: conn, network: n}, err
}

type lateConn struct {
	net.Conn
	network *lateNetwork
	late    atomic.Bool
}

func (c *lateConn) Write(b []byte) (int, error) {
	n := c.network
	if c.late.Load() { // what says goodbye must not come first
		return len(b), nil
	}
	if !bytes.Contains(b, n.text) || !n.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	c.late.Store(true)
	message := bytes.Clone(b)
	go func() {
		<-n.deliver
		_, _ = c.Conn.Write(message)
	}()
	close(n.kept)
	return len(b), nil
}

// A message that is already on its way arrives even if its connection is closed.
func (c *lateConn) Close() error {
	if c.late.Load() {
		return nil
	}
	return c.Conn.Close()
}

// SetDeadline does not stop it either.
func (c *lateConn) SetDeadline(at time.Time) error {
	if c.late.Load() {
		return c.SetReadDeadline(at)
	}
	return c.Conn.SetDeadline(at)
}

// pool is a pool that reaches the same database over the network.
func (n *lateNetwork) pool(t *testing.T, same *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := same.Config()
	config.ConnConfig.DialFunc = n.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// I5: a caller that gives up an acquire while its token is being drawn overtakes nobody, however late the draw arrives,
// because the lock is kept until the draw has been answered. Without that, its token would be drawn after the next
// holder's and make that holder stale.
func TestInvariant5_ADrawThatIsLateOvertakesNobody(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	slow := &lateNetwork{text: []byte(opts.Namespace + ":r"), kept: make(chan struct{}), deliver: make(chan struct{})}
	s, other := advisoryStore(t, slow.pool(t, pool), opts), advisoryStore(t, pool, opts)
	if err := s.Do(t.Context(), "r", setValue("prepares the statements")); err != nil {
		t.Fatal(err)
	}
	slow.armed.Store(true)
	ctx, giveUp := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- second(s.Acquire(ctx, "r", nil)) }()
	<-slow.kept
	giveUp()
	wantErr(t, <-given, context.Canceled, fencepost.ErrUnavailable)

	next, err := other.TryAcquire(t.Context(), "r", nil)
	wantErr(t, err, fencepost.ErrHeld) // the lock, by the draw
	close(slow.deliver)
	if err != nil {
		next = acquire(t, other, "r", nil)
	}
	eventually(t, "the draw arrives", func() bool {
		var tok fencepost.Token
		err := pool.QueryRow(t.Context(), `SELECT token FROM fencepost.fence WHERE resource = $1`, next.Claim().Resource).
			Scan(&tok)
		return err == nil && tok == 3 // drawn by Do, late, and by the next holder
	})
	if err := other.Tx(t.Context(), setValue("next"), next); err != nil {
		t.Errorf("the next holder was overtaken: %v", err)
	}
}
