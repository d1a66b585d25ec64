package advisory_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// smallTable returns the address of a server whose lock table holds about 10 × 28 locks, 70 of them for one session.
func smallTable(t *testing.T) string {
	t.Helper()
	return testenv.OwnPostgres(t, "-c", "max_locks_per_transaction=10", "-c", "max_connections=28",
		"-c", "max_prepared_transactions=0").
		URL()
}

// tries counts the statements that try a lock.
type tries struct{ sent atomic.Int64 }

func (c *tries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "pg_try_advisory_lock") {
		c.sent.Add(1)
	}
	return ctx
}

func (*tries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func poolTraced(t *testing.T, url string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// fill takes leases until one is refused, and returns the error. It releases them when the test ends.
func fill(t *testing.T, l *advisory.Locker) (held []*advisory.Lease, refused error) {
	t.Helper()
	const most = 50_000
	t.Cleanup(func() {
		for _, lease := range held {
			_ = lease.Release(context.Background())
		}
	})
	for i := range most {
		lease, err := l.TryAcquire(
			t.Context(),
			"resource-"+string(rune('a'+i%26))+strings.Repeat("x", i/26%500)+strings.Repeat("y", i/13_000),
			nil,
		)
		if err != nil {
			return held, err
		}
		held = append(held, lease)
	}
	t.Fatalf("%d leases were granted", most)
	return nil, nil
}

// lockOf takes one more lock in another session, as any other statement may have to.
func lockOf(t *testing.T, pool *pgxpool.Pool) error {
	t.Helper()
	_, err := pool.Exec(t.Context(), `SELECT pg_advisory_xact_lock(7)`)
	return err
}

// One process fills at most a quarter of the server's lock table, and sends nothing beyond that.
func TestASessionLeavesTheLockTableToOthers(t *testing.T) {
	t.Parallel()
	const capacity = 70
	url := smallTable(t)
	var seen tries
	pool := poolTraced(t, url, &seen)
	l := locker(t, pool, nil)
	held, err := fill(t, l)
	wantErr(t, err, advisory.ErrUnavailable)
	if !strings.Contains(err.Error(), "max_locks_per_transaction") || errors.Is(err, advisory.ErrHeld) {
		t.Errorf("refused with %v", err)
	}
	if sent := seen.sent.Load(); len(held) != capacity || sent != capacity {
		t.Errorf("%d leases, %d tries sent, want %d", len(held), sent, capacity)
	}
	if err := lockOf(t, pool); err != nil {
		t.Errorf("another session: %v", err)
	}

	// A waiter is refused as well: its own process may fill the table. Each released lease makes room for one.
	_, err = l.Acquire(t.Context(), "one more", nil)
	wantErr(t, err, advisory.ErrUnavailable)
	if err := held[0].Release(t.Context()); err != nil {
		t.Error(err)
	}
	held[0] = acquire(t, l, "one more")
	_, err = l.Acquire(t.Context(), "and another", nil)
	wantErr(t, err, advisory.ErrUnavailable)
	for _, lease := range held {
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	again := acquire(t, l, "one more")
	if err := again.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A refusal is not a reply of PostgreSQL's, so it does not make a lease trusted for longer.
func TestARefusalForWantOfRoomIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	pool := testenv.PoolOn(t, smallTable(t))
	l := locker(
		t,
		pool,
		&advisory.Options{TTL: advisory.MaxTTL, ProbeEvery: advisory.MaxTTL / 4, AnswerWithin: advisory.MaxTTL / 4},
	)
	held, _ := fill(t, l)
	before := held[0].Remaining()
	for range 3 {
		_, err := l.TryAcquire(t.Context(), "one more", nil)
		wantErr(t, err, advisory.ErrUnavailable)
		if now := held[0].Remaining(); now >= before {
			t.Errorf("%v remain, %v before", now, before)
		}
	}
}

// Control: without the bound one process fills the table, and others fail.
func TestControl_WithoutTheBoundOneProcessFillsTheLockTable(t *testing.T) {
	t.Parallel()
	pool := testenv.PoolOn(t, smallTable(t))
	held, err := fill(t, advisory.WithoutBound(locker(t, pool, nil)))
	const outOfMemory = "53200"
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != outOfMemory {
		t.Fatalf("after %d leases: %v", len(held), err)
	}
	if err := lockOf(t, pool); !errors.As(err, &server) || server.Code != outOfMemory {
		t.Errorf("another session was not harmed: %v", err)
	}
}
