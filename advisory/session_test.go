package advisory_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// A session lock does not exclude its own session: without the queue in the process, two goroutines both get it.
func TestControl_WithoutTurnsOneSessionLocksTwice(t *testing.T) {
	t.Parallel()
	l := locker(t, testenv.Pool(t), nil)
	var both []*advisory.Lease
	for range 2 {
		lease, err := l.LookWithoutATurn(t.Context(), "r")
		if err != nil {
			t.Fatalf("excluded: the control shows nothing: %v", err)
		}
		both = append(both, lease)
	}
	for _, lease := range both {
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Case 11: behind a pooler nothing is locked and nothing is set, and the error says what is in between. This holds for
// every mode and size, because a lock that works by chance today is stranded tomorrow.
func TestCase11_APoolerIsRefused(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]services.PgBouncerOptions{
		"transaction, 4": {PoolSize: 4},
		"transaction, 1": {PoolSize: 1},
		"session":        {PoolMode: services.PoolSession},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testenv.Database(t)
			direct := testenv.PoolOn(t, address)
			config, err := pgxpool.ParseConfig(testenv.PgBouncer(t, address, &opts).URL())
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			behind, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(behind.Close)
			l := locker(t, behind, nil)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 5 {
						_, err := l.Acquire(t.Context(), "r", nil)
						if !errors.Is(err, advisory.ErrInvalid) || errors.Is(err, advisory.ErrUnavailable) ||
							!strings.Contains(err.Error(), "PgBouncer") {
							t.Errorf("got %v", err)
						}
					}
				})
			}
			wg.Wait()
			if n := locks(t, direct); n != 0 {
				t.Errorf("%d locks stayed behind", n)
			}
			for range 4 {
				var user string
				if err := behind.QueryRow(t.Context(), `SELECT current_setting('tcp_user_timeout')`).
					Scan(&user); err != nil ||
					user != "0" {
					t.Errorf("a setting reached the next user: %q, %v", user, err)
				}
			}
			if n := behind.Stat().AcquiredConns(); n != 0 {
				t.Errorf("%d connections were not given back", n)
			}
		})
	}
}

// Case 15: a caller whose context has ended still releases.
func TestCase15_ReleaseOnADeadContext(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := locker(t, pool, nil).Acquire(ctx, "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if l.Err() != nil || l.Context().Err() != nil {
		t.Error("the acquire's context ended the lease")
	}
	if err := l.Release(ctx); err != nil || locks(t, pool) != 0 {
		t.Errorf("%d locks, %v", locks(t, pool), err)
	}
}

// Cases 11 and 15: a lock that PostgreSQL does not confirm as released may be anywhere. That is an error, and the
// session ends with all that it holds.
func TestCase11_AFalseUnlockIsAnErrorAndEndsTheSession(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	a := locker(t, pool, &advisory.Options{Label: "A"})
	one, two := acquire(t, a, "1"), acquire(t, a, "2")
	if err := a.Sabotage(`SELECT pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantErr(t, one.Release(t.Context()), advisory.ErrUnavailable)
	}
	within(t, time.Second, two)
	wantLost(t, two, "session ended")
	if err := acquire(t, a, "1").Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A reply that nobody waits for any longer: what it granted is released.
func TestALockGrantedTooLateIsGivenBack(t *testing.T) {
	t.Parallel()
	a, direct, proxy := proxied(t, &advisory.Options{TTL: time.Hour, AnswerWithin: time.Minute})
	keep := acquire(t, a, "keep") // opens the session
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		proxy.Latency(40 * time.Millisecond)
		_, err := a.TryAcquire(ctx, "r", nil)
		wantErr(t, err, advisory.ErrUnavailable, context.DeadlineExceeded)
		cancel()
		proxy.Latency(0)
		l := acquire(t, a, "r")
		if n := locks(t, direct); n != 2 {
			t.Errorf("%d locks, of two leases", n)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if n := locks(t, direct); n != 1 {
			t.Errorf("%d locks, of one lease", n)
		}
	}
	if err := keep.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// When ctx ends, the error has the last outcome.
func TestAWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	a, b := locker(t, pool, nil), locker(t, pool, nil)
	l := acquire(t, a, "r")
	var wg sync.WaitGroup
	for _, other := range []*advisory.Locker{a, b, b} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := other.Acquire(ctx, "r", nil)
			wantErr(t, err, advisory.ErrHeld, context.DeadlineExceeded)
			if errors.Is(err, advisory.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := locker(t, pool, nil).Acquire(ctx, "r", nil)
	wantErr(t, err, advisory.ErrUnavailable, context.DeadlineExceeded)
}

// A release notifies the other processes, so nobody has to look by itself.
func TestAReleaseWakesTheWaitersOfOtherProcesses(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	opts := &advisory.Options{Label: "waiter", LookEvery: time.Hour, ProbeEvery: 20 * time.Second}
	next := make(chan *advisory.Lease)
	l := acquire(t, locker(t, pool, nil), "r")
	for range 3 {
		other := locker(t, pool, opts)
		go func() {
			l, err := other.Acquire(t.Context(), "r", nil)
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
	}
	// All have looked for the last time before they are notified.
	err := testenv.UntilQuery(t.Context(), pool, `SELECT count(*) = 3 FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'waiter' AND state = 'idle'
			AND query LIKE 'SELECT pg_catalog.pg_try_advisory_lock%'`)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case l = <-next:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody was told")
		}
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Waiters and leases of a process share one connection, and the pool's are free.
func TestCase25_WaitersHoldNoConnection(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	a := locker(t, pool, &advisory.Options{Label: "A"})
	l := acquire(t, a, "r")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = a.Acquire(ctx, "r", nil) })
	}
	for a.Waiting("r") != 20 {
		runtime.Gosched()
	}
	var sessions int
	err := pool.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'A'`).
		Scan(&sessions)
	if n := pool.Stat().AcquiredConns(); err != nil || sessions != 1 || n != 0 {
		t.Errorf("%d sessions, %d connections of the pool, %v", sessions, n, err)
	}
	cancel()
	wg.Wait()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// The connection is kept for a while for the next caller, without a goroutine. One that has ended meanwhile is
// replaced.
func TestTheConnectionIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	a := locker(t, pool, &advisory.Options{Label: "A"})
	pids := make(map[int]bool)
	for range 3 {
		l := acquire(t, a, "r")
		pids[session(t, pool, "A")] = true
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(pids) != 1 {
		t.Errorf("three leases had %d sessions", len(pids))
	}
	terminate(t, pool, "A")
	l, err := a.TryAcquire(t.Context(), "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	short := locker(t, pool, &advisory.Options{Label: "B", Linger: time.Millisecond})
	if err := acquire(t, short, "r").Release(t.Context()); err != nil {
		t.Error(err)
	}
	for session(t, pool, "B") != 0 && t.Context().Err() == nil {
	}
}

// Settings of the server or role that would end or limit the session do not apply to it.
func TestTheSessionHasSettingsOfItsOwn(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	config := pool.Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = "500"
	config.ConnConfig.RuntimeParams["lock_timeout"] = "1"
	short, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	a := locker(t, short, &advisory.Options{TTL: 10 * time.Second})
	l := acquire(t, a, "r")
	if err := a.Sabotage(`SELECT pg_sleep(0.6)`); err != nil {
		t.Error(err)
	}
	if err := a.Sabotage(
		`DO $$ BEGIN ASSERT current_setting('statement_timeout') = '0' AND current_setting('synchronous_commit') = 'off'
		AND coalesce(current_setting('idle_session_timeout', true), '10s') = '10s'; END $$`,
	); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Not every role may see who holds a lock; it can still wait for it.
func TestAHolderWithoutANameIsStillAHolder(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	limited := lacking(t, pool, `SELECT ON pg_catalog.pg_stat_activity`)
	l := acquire(t, locker(t, pool, nil), "r")
	b := locker(t, limited, nil)
	_, err := b.TryAcquire(t.Context(), "r", nil)
	wantErr(t, err, advisory.ErrHeld)
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := acquire(t, b, "r").Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Cases 14 and 26: calls that cannot work are refused before any traffic.
func TestCase26_SettingsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, opts := range map[string]advisory.Options{
		"namespace":      {Namespace: strings.Repeat("x", 65)},
		"label":          {Label: "\x00"},
		"no TTL":         {TTL: -1},
		"short TTL":      {TTL: time.Millisecond},
		"long TTL":       {TTL: math.MaxInt64},
		"probe":          {ProbeEvery: -1},
		"slow probe":     {TTL: time.Second, ProbeEvery: time.Second},
		"answer":         {AnswerWithin: -1},
		"slow answer":    {TTL: time.Second, AnswerWithin: time.Second},
		"endless answer": {AnswerWithin: math.MaxInt64},
		"look":           {LookEvery: -1},
		"linger":         {Linger: -1},
		"long linger":    {TTL: time.Second, Linger: time.Second},
	} {
		if _, err := advisory.NewLocker(pool, &opts); !errors.Is(err, advisory.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := advisory.NewLocker(nil, nil); !errors.Is(err, advisory.ErrInvalid) {
		t.Errorf("no pool: %v", err)
	}
	l := locker(t, pool, nil)
	for _, resource := range []string{"", "\x00", "\xff", strings.Repeat("x", 513)} {
		_, err := l.Acquire(t.Context(), resource, nil)
		wantErr(t, err, advisory.ErrInvalid)
	}
	_, err = l.TryAcquire(t.Context(), "r", &advisory.AcquireOptions{Label: "\xff"})
	wantErr(t, err, advisory.ErrInvalid)
}

// Case 26: repeated cycles leave no goroutine, and releases do not race.
func TestCase26_ACycleLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	a := locker(t, testenv.Pool(t), &advisory.Options{ProbeEvery: time.Millisecond, AnswerWithin: 10 * time.Second})
	for range 300 {
		l := acquire(t, a, "r")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				_ = l.Err()
			})
		}
		wg.Wait()
	} // testenv.Main looks for leaks
}
