package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// promote shuts the primary down cleanly and promotes its standby.
func promote(t *testing.T, pair *services.PostgresPair) {
	t.Helper()
	if err := pair.Primary.Shut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !value[bool](t, testenv.PoolOn(t, pair.Standby.URL()), `SELECT pg_promote()`) {
		t.Fatal("the standby was not promoted")
	}
}

// switchOver has the two servers of a pair change places.
func switchOver(t *testing.T, pair *services.PostgresPair) {
	t.Helper()
	promote(t, pair)
	if err := pair.Primary.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !value[bool](t, testenv.PoolOn(t, pair.Primary.URL()), `SELECT pg_is_in_recovery()`) {
		t.Fatal("the primary is one still")
	}
}

// every is all calls of a caller, by name.
func (c *caller) every(t *testing.T) map[string]func() error {
	t.Helper()
	calls := c.writes(t.Context(), t)
	calls["get"] = func() error { return second(c.table.Get(t.Context(), c.lease, fencepost.Key{"1"})) }
	calls["table"] = func() error { return second(fencepost.NewTable[Invoice](t.Context(), c.store, invoiceSpec())) }
	return calls
}

// wantRecovery makes each call 25 times, and allows at most as many failures as the pool has connections.
func wantRecovery(t *testing.T, pool *pgxpool.Pool, calls map[string]func() error) {
	t.Helper()
	failed := 0
	for range 25 {
		for what, call := range calls {
			if err := call(); err != nil {
				failed++
				if !errors.Is(err, fencepost.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	}
	if failed > int(pool.Config().MaxConns) {
		t.Errorf("%d calls failed", failed)
	}
}

// C37: connections that were opened while their server was a standby can be used once it has been promoted.
func TestCase37_APromotedStandbyIsNotLeft(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	pool := newSwitching(t, pair.Primary.URL())
	c := newCaller(t, b, pool.Pool)
	pool.lead(t, pair.Standby.URL())
	pool.Reset()
	for what, call := range c.every(t) {
		wantErr(t, call(), fencepost.ErrUnavailable)
		if t.Failed() {
			t.Fatalf("%s on a standby", what)
		}
	}
	pool.fill(t)
	opened := pool.Stat().NewConnsCount()
	promote(t, pair)
	wantRecovery(t, pool.Pool, c.every(t))
	if n := pool.Stat().NewConnsCount() - opened; n > 0 {
		t.Errorf("%d connections were reopened", n)
	}
	if err := c.lease.Err(); err != nil {
		t.Errorf("the lease from before: %v", err)
	}
}

// C37: the two servers change places, and for a while the address still leads to the one that has become a standby.
func TestCase37_ARealSwitchOfTwoServers(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	pool := newSwitching(t, pair.Primary.URL())
	c := newCaller(t, b, pool.Pool)
	pool.fill(t)
	switchOver(t, pair)
	for what, call := range c.every(t) {
		if err := call(); err == nil {
			t.Errorf("%s: done by a standby, or by a server that was shut down", what)
		}
	}
	pool.fill(t)
	for range 25 {
		if _, err := pool.Exec(t.Context(), `UPDATE app.invoice SET value = 'x'`); err == nil {
			t.Fatal("the control was carried out: the pool is not stuck")
		}
	}
	pool.lead(t, pair.Standby.URL())
	wantRecovery(t, pool.Pool, c.every(t))
	if err := c.lease.Err(); err != nil {
		t.Errorf("the lease from before: %v", err)
	}
}

// C37: a session of advisory locks ends with the server that it was on. None is opened on a standby, and once the
// address leads to the new primary, at most as many calls fail as the pool has connections. Who has waited all the
// while gets the lease without an error. The fence came with the replica, so the holder from before is refused.
func TestCase37_AdvisoryLeasesAfterASwitch(t *testing.T) {
	t.Parallel()
	b, pair := setupPair(t)
	pool := newSwitching(t, pair.Primary.URL())
	s := advisoryStore(t, pool.Pool, &b.opts)
	idle := advisoryStore(t, pool.Pool, &b.opts)
	waiting := advisoryStore(
		t,
		pool.Pool,
		&b.opts,
	) // its session may be on its way to the standby when the address is changed
	inTransaction := advisoryTx(t, pool.Pool, &b.opts)
	before := acquire(t, s, "invoice-1", nil)
	if err := acquire(t, idle, "invoice-2", nil).Release(t.Context()); err != nil { // its session lingers
		t.Fatal(err)
	}
	switchOver(t, pair)
	<-before.Done()
	wantErr(t, s.Tx(t.Context(), setValue("x"), before), fencepost.ErrLost)
	pool.Reset()
	pool.fill(t)
	for what, err := range map[string]error{
		"session":     second(s.TryAcquire(t.Context(), "invoice-1", nil)),
		"lingering":   second(idle.TryAcquire(t.Context(), "invoice-2", nil)),
		"transaction": inTransaction.Do(t.Context(), "invoice-3", setValue("x")),
	} {
		said := what == "transaction" || err != nil && strings.Contains(err.Error(), "standby")
		if !errors.Is(err, fencepost.ErrUnavailable) || errors.Is(err, fencepost.ErrHeld) || !said {
			t.Errorf("%s: %v", what, err)
		}
	}
	waited := make(chan error, 1)
	go func() {
		l, err := waiting.Acquire(shortly(t.Context(), t), "waited for", nil)
		if err == nil {
			err = l.Release(t.Context())
		}
		waited <- err
	}()
	pool.fill(t)
	pool.lead(t, pair.Standby.URL())
	wantRecovery(t, pool.Pool, map[string]func() error{
		"session":     func() error { return tryOnce(t.Context(), s, "invoice-1") },
		"lingering":   func() error { return tryOnce(t.Context(), idle, "invoice-2") },
		"transaction": func() error { return inTransaction.Do(t.Context(), "invoice-3", setValue("x")) },
	})
	if err := <-waited; err != nil {
		t.Errorf("who waited: %v", err)
	}
	after := acquire(t, s, "invoice-1", nil)
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return fence.Enter(t.Context(), tx, before.Claim()) })
	wantErr(t, err, fencepost.ErrStale)
}

func tryOnce(ctx context.Context, s *fencepost.Store, resource string) error {
	l, err := s.TryAcquire(ctx, resource, nil)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}
