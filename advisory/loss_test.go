package advisory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// session returns the process id of the session that holds or awaits under a label.
func session(t *testing.T, pool *pgxpool.Pool, label string) (pid int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE application_name = $1
		AND datname = current_database()`, label).Scan(&pid)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func terminate(t *testing.T, pool *pgxpool.Pool, label string) {
	t.Helper()
	pid := session(t, pool, label)
	if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil || pid == 0 {
		t.Fatalf("session %d: %v", pid, err)
	}
}

// within waits for the end of a lease, and returns how long it took.
func within(t *testing.T, most time.Duration, l *advisory.Lease) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case <-l.Done():
	case <-time.After(most + 2*time.Second): // the machine may be busy
		t.Fatalf("not lost within %v", most)
	}
	return time.Since(began)
}

func wantLost(t *testing.T, l *advisory.Lease, reasons ...string) {
	t.Helper()
	var lost *advisory.LostError
	if err := l.Err(); !errors.As(err, &lost) || !errors.Is(err, advisory.ErrLost) ||
		errors.Is(err, advisory.ErrReleased) {
		t.Fatalf("got %v", err)
	}
	for _, reason := range reasons {
		if string(lost.Reason) == reason {
			return
		}
	}
	t.Errorf("lost by %q: %v", lost.Reason, lost)
}

// Case 10: the server ends the session. All leases on it are lost at once, and their contexts have the cause. Another
// process gets the lock. A caller of this process that asks again gets it after that on a new session.
func TestCase10_ATerminatedSessionIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	lost := make(chan *advisory.Lease, 2)
	a := locker(t, pool, &advisory.Options{Label: "A", Lost: func(l *advisory.Lease, cause *advisory.LostError) {
		if cause.Reason != advisory.ReasonSession {
			t.Errorf("the hook got %v", cause)
		}
		_ = l.Release(context.Background()) // no deadlock
		lost <- l
	}})
	one, two := acquire(t, a, "1"), acquire(t, a, "2")
	terminate(t, pool, "A")
	for _, l := range []*advisory.Lease{one, two} {
		within(t, time.Second, l)
		wantLost(t, l, "session ended")
		wantErr(t, context.Cause(l.Context()), advisory.ErrLost)
		wantErr(t, l.Release(t.Context()), advisory.ErrLost)
		<-lost
	}
	b := acquire(t, locker(t, pool, nil), "1")
	if _, err := a.TryAcquire(t.Context(), "1", nil); !errors.Is(err, advisory.ErrHeld) {
		t.Errorf("got %v", err)
	}
	if err := b.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := acquire(t, a, "1").Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Case 10: pools retire connections after a time. Not this one.
func TestCase10_ThePoolDoesNotRetireTheSession(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConnLifetime, config.MaxConnIdleTime, config.HealthCheckPeriod = 100*time.Millisecond,
		100*time.Millisecond, 20*time.Millisecond
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := acquire(t, locker(t, pool, nil), "r")
	select {
	case <-l.Done():
		t.Errorf("lost: %v", l.Err())
	case <-time.After(time.Second): // ten lifetimes
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// proxied is a locker whose connection passes through a proxy, and a pool that does not.
func proxied(t *testing.T, opts *advisory.Options) (*advisory.Locker, *pgxpool.Pool, *faults.Proxy) {
	t.Helper()
	address := testenv.Database(t)
	direct := testenv.PoolOn(t, address)
	proxy := faults.NewProxy(t, hostOf(direct))
	return locker(t, testenv.PoolOn(t, proxy.URL(t, address)), opts), direct, proxy
}

// Case 10: the network is cut silently. The holder notices within ProbeEvery plus AnswerWithin, though nothing is
// asked.
func TestCase10_ASilentCutIsNoticedInTheStatedTime(t *testing.T) {
	t.Parallel()
	opts := advisory.Options{Label: "A", ProbeEvery: 100 * time.Millisecond, AnswerWithin: 200 * time.Millisecond}
	a, _, proxy := proxied(t, &opts)
	l := acquire(t, a, "r")
	proxy.Hang()
	took := within(t, opts.ProbeEvery+opts.AnswerWithin, l)
	t.Logf("noticed after %v", took)
	wantLost(t, l, "server unreachable")
	proxy.Resume()
}

func TestCase10_AResetConnectionIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	a, direct, proxy := proxied(t, &advisory.Options{TTL: time.Hour, ProbeEvery: time.Minute, AnswerWithin: time.Minute})
	l := acquire(t, a, "r")
	proxy.CutOnce()
	within(t, time.Second, l)
	wantLost(t, l, "session ended")
	if err := acquire(t, locker(t, direct, nil), "r").Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// PostgreSQL releases the locks of a silent process after the TTL, and the process gave them up before. (The proxy also
// holds back what would tell PostgreSQL that the connection was closed.)
func TestALockOfASilentProcessIsFreeAfterTheTTL(t *testing.T) {
	t.Parallel()
	const ttl = 500 * time.Millisecond
	a, direct, proxy := proxied(t, &advisory.Options{TTL: ttl})
	b := locker(t, direct, &advisory.Options{LookEvery: 20 * time.Millisecond})
	var version int
	if err := direct.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int`).
		Scan(&version); err != nil {
		t.Fatal(err)
	}
	l := acquire(t, a, "r")
	proxy.Hang()
	defer proxy.Resume()
	if version < 140000 {
		t.Log("PostgreSQL has no idle_session_timeout before version 14")
		within(t, ttl, l)
		return
	}
	began := time.Now()
	other := acquire(t, b, "r")
	if l.Err() == nil {
		t.Error("both hold it")
	}
	if took := time.Since(began); took < ttl/2 || took > ttl+5*time.Second {
		t.Errorf("it was free after %v", took)
	}
	if err := other.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// The lease is over once there was no reply for the TTL by any clock, before anything is sent.
func TestAStepOfTheWallClockEndsALease(t *testing.T) {
	t.Parallel()
	wall := &steppedClock{}
	l := acquire(t, locker(t, testenv.Pool(t), &advisory.Options{WallClock: wall.now, ProbeEvery: 9 * time.Second}), "r")
	if l.Err() != nil {
		t.Fatal(l.Err())
	}
	wall.step(time.Minute)
	if l.Remaining() != 0 {
		t.Errorf("%v left", l.Remaining())
	}
	wantLost(t, l, "clock")
	within(t, time.Second, l)
}

// C61: the wall clock is the caller's code, and is read with no lock held: it may call a lease.
func TestCase61_AWallClockMayAskALease(t *testing.T) {
	t.Parallel()
	var held atomic.Pointer[advisory.Lease]
	var busy atomic.Bool // the lease reads the clock as well
	var asked atomic.Int32
	wall := func() time.Time {
		if l := held.Load(); l != nil && busy.CompareAndSwap(false, true) {
			_, _ = l.Err(), l.Remaining()
			asked.Add(1)
			busy.Store(false)
		}
		return time.Now()
	}
	l := acquire(t, locker(t, testenv.Pool(t), &advisory.Options{WallClock: wall, ProbeEvery: 50 * time.Millisecond}), "r")
	held.Store(l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Err(), l.Remaining()
		for probes := asked.Load() + 2; asked.Load() < probes; { // the session's own readings
			<-time.After(10 * time.Millisecond)
		}
		_ = l.Release(t.Context())
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a clock that asks the lease waits for itself")
	}
}

// A waiter for a lock whose session ended finds out though nobody notifies it.
func TestTheWaiterOfASessionThatEndedFindsOut(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	a, b := locker(
		t,
		pool,
		&advisory.Options{Label: "A"},
	), locker(
		t,
		pool,
		&advisory.Options{LookEvery: 50 * time.Millisecond},
	)
	_ = acquire(t, a, "r")
	got := make(chan error)
	go func() {
		l, err := b.Acquire(t.Context(), "r", nil)
		if err == nil {
			err = l.Release(t.Context())
		}
		got <- err
	}()
	terminate(t, pool, "A")
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A waiter outlives its own session: it continues on another.
func TestAWaiterOutlivesItsSession(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	a, b := locker(t, pool, nil), locker(t, pool, &advisory.Options{Label: "B"})
	l := acquire(t, a, "r")
	got := make(chan error)
	go func() {
		l, err := b.Acquire(t.Context(), "r", nil)
		if err == nil {
			err = l.Release(t.Context())
		}
		got <- err
	}()
	for session(t, pool, "B") == 0 {
	}
	terminate(t, pool, "B")
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
