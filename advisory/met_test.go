package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// I9: while PostgreSQL cannot be asked, nobody is reported as the holder, least of all a waiter of this process.
func TestInvariant9_AWaiterIsNoHolder(t *testing.T) {
	t.Parallel()
	nowhere, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	a := locker(t, nowhere, nil)
	cancel, waiter := wait(t, a, "r")
	_, err = a.TryAcquire(t.Context(), "r", nil)
	wantNotHeld(t, err)
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = a.Acquire(short, "r", nil)
	wantNotHeld(t, err)
	wantErr(t, err, context.DeadlineExceeded)
	cancel()
	err = <-waiter
	wantNotHeld(t, err)
	wantErr(t, err, context.Canceled)
}

// wait makes one caller wait for a resource until cancelled, and returns when it does wait.
func wait(t *testing.T, a *advisory.Locker, resource string) (cancel func(), waiter <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := a.Acquire(ctx, resource, nil)
		ended <- err
	}()
	for a.Users() == 0 {
		runtime.Gosched()
	}
	return cancel, ended
}

func wantNotHeld(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, advisory.ErrUnavailable) || errors.Is(err, advisory.ErrHeld) {
		t.Errorf("got %v", err)
	}
}

// I9: a caller that waits behind a waiter of this process is told the real holder.
func TestInvariant9_TheHolderIsNamedAndNotTheWaiter(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	l := acquire(t, locker(t, pool, &advisory.Options{Label: "holder"}), "r")
	a := locker(t, pool, &advisory.Options{Label: "waiter"})
	cancel, waiter := wait(t, a, "r")
	_, err := a.TryAcquire(t.Context(), "r", nil)
	wantErr(t, err, advisory.ErrHeld)
	wantNotNamed(t, err, "waiter")
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = a.Acquire(short, "r", nil)
	wantErr(t, err, advisory.ErrHeld, context.DeadlineExceeded)
	wantNotNamed(t, err, "waiter")
	cancel()
	wantErr(t, <-waiter, advisory.ErrHeld, context.Canceled)
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	// Once this process holds it, it is named.
	l = acquire(t, a, "r")
	_, err = a.TryAcquire(t.Context(), "r", nil)
	var held *advisory.HeldError
	if !errors.As(err, &held) || held.Label != "waiter" {
		t.Errorf("got %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// wantNotNamed accepts an empty label: later looks do not ask for the name.
func wantNotNamed(t *testing.T, err error, label string) {
	t.Helper()
	var held *advisory.HeldError
	if errors.As(err, &held) && held.Label == label {
		t.Errorf("got %v", err)
	}
}

// A waiter that registers while UNLISTEN is in flight is still notified of releases, and so is the one that has the
// turn after an abandoned look.
func TestAWaiterIsNeverDeaf(t *testing.T) {
	t.Parallel()
	if !advisory.RegisterDuringUnlisten() {
		t.Error("deaf after UNLISTEN")
	}
	if !advisory.UnregisterAfterASuccessor() {
		t.Error("deaf after another has unregistered")
	}
}

// hooked returns a pool whose connections the test sees made and handed out.
func hooked(t *testing.T, wrap func(net.Conn) net.Conn, prepare func(*pgx.Conn)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	if wrap != nil {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}
	}
	if prepare != nil {
		config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
			prepare(conn)
			return true, nil
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// I9: the end of one caller's ctx does not affect another.
func TestInvariant9_WhoComesWhileTheOpeningIsStoppedIsServed(t *testing.T) {
	t.Parallel()
	opening, goOn := make(chan struct{}, 2), make(chan struct{})
	pool := hooked(t, nil, func(*pgx.Conn) {
		opening <- struct{}{}
		<-goOn
	})
	a := locker(t, pool, nil)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := a.TryAcquire(ctx, "1", nil)
		first <- err
	}()
	<-opening
	cancel()
	wantErr(t, <-first, context.Canceled)
	second := make(chan error)
	go func() {
		l, err := a.TryAcquire(t.Context(), "2", nil)
		if err == nil {
			err = l.Release(t.Context())
		}
		second <- err
	}()
	for a.Users() == 0 {
		runtime.Gosched()
	}
	close(goOn)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// closedConn reports when it was closed.
type closedConn struct {
	net.Conn
	closed *atomic.Int32
}

func (c *closedConn) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

// A connection that cannot be used is closed: the pool no longer owns it.
func TestAConnectionOfNoUseIsClosed(t *testing.T) {
	t.Parallel()
	var closed atomic.Int32
	pool := hooked(t, func(c net.Conn) net.Conn { return &closedConn{c, &closed} }, func(conn *pgx.Conn) {
		_ = conn.PgConn().Exec(context.Background(), `SELECT 1`) // never read, so it stays busy
	})
	_, err := locker(t, pool, nil).TryAcquire(t.Context(), "r", nil)
	wantErr(t, err, advisory.ErrUnavailable)
	if closed.Load() == 0 {
		t.Error("it was left open")
	}
}

// A release succeeds even if nobody can be notified of it, and the session continues.
func TestAReleaseNeedsNoNotify(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	mute := lacking(t, pool, `EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text)`)
	releaseOne(t, locker(t, mute, nil), pool)
}

// releaseOne releases one of two leases.
func releaseOne(t *testing.T, a *advisory.Locker, direct *pgxpool.Pool) {
	t.Helper()
	keep, l := acquire(t, a, "keep"), acquire(t, a, "r")
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := keep.Err(); err != nil {
		t.Error(err)
	}
	if n := locks(t, direct); n != 1 {
		t.Errorf("%d locks, of one lease", n)
	}
	if err := keep.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// uncommitted is a connection on which, once told, every statement that returns "true" and another column fails at its
// commit.
type uncommitted struct {
	net.Conn
	told *atomic.Int32
}

func (c *uncommitted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	ready := []byte("Z\x00\x00\x00\x05I")
	if c.told.Load() == 0 || !bytes.HasSuffix(p[:n], ready) ||
		!bytes.Contains(p[:n], []byte("\x00\x02\x00\x00\x00\x04true")) {
		return n, err
	}
	c.told.Add(1)
	fields := "SERROR\x00VERROR\x00C54000\x00Mtoo many notifications in the NOTIFY queue\x00\x00"
	refusal := append([]byte{'E', 0, 0, 0, byte(4 + len(fields))}, fields...)
	return copy(p, append(append(bytes.Clone(p[:n-len(ready)]), refusal...), ready...)), err
}

// A full NOTIFY queue refuses the commit of an unlock; the lock has been released by then.
func TestAFullNotifyQueueEndsNoSession(t *testing.T) {
	t.Parallel()
	var full atomic.Int32
	pool := hooked(t, func(c net.Conn) net.Conn { return &uncommitted{c, &full} }, nil)
	a := locker(t, pool, nil)
	keep, l := acquire(t, a, "keep"), acquire(t, a, "r")
	full.Store(1)
	if err := errors.Join(l.Release(t.Context()), keep.Err(), keep.Release(t.Context())); err != nil || full.Load() != 3 {
		t.Errorf("%d refusals, %v", full.Load()-1, err)
	}
	full.Store(0)
	if n := locks(t, pool); n != 0 {
		t.Errorf("%d locks stayed behind", n)
	}
}

// The time for which the machine was suspended counts, even if the wall clock does not show it.
func TestASuspensionEndsALease(t *testing.T) {
	t.Parallel()
	var asleep atomic.Int64
	a, err := advisory.NewLockerOn(testenv.Pool(t), &advisory.Options{ProbeEvery: 9 * time.Second},
		func() time.Duration { return time.Duration(asleep.Load()) })
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, a, "r")
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	asleep.Store(int64(time.Minute))
	wantLost(t, l, "clock")
}
