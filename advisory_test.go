package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// onLocks sets up a table and the options of stores without Redis.
func onLocks(t *testing.T) (*pgxpool.Pool, *fencepost.Options) {
	t.Helper()
	pool := testenv.Pool(t)
	exec(t, pool, createInvoices)
	return pool, &fencepost.Options{Namespace: "n", Label: "worker 7"}
}

func advisoryStore(t *testing.T, pool *pgxpool.Pool, opts *fencepost.Options) *fencepost.Store {
	t.Helper()
	s, err := fencepost.NewAdvisory(pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func advisoryTx(t *testing.T, pool *pgxpool.Pool, opts *fencepost.Options) *fencepost.AdvisoryTx {
	t.Helper()
	a, err := fencepost.NewAdvisoryTx(pool, txOptions(opts))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// txOptions returns those of a store's options that an AdvisoryTx also has.
func txOptions(o *fencepost.Options) *fencepost.AdvisoryTxOptions {
	return &fencepost.AdvisoryTxOptions{
		Namespace: o.Namespace,
		MaxIdle:   o.MaxIdle,
		SettleFor: o.SettleFor,
		Label:     o.Label,
		Logger:    o.Logger,
		Events:    o.Events,
	}
}

func valueOf(t *testing.T, pool *pgxpool.Pool, id string) (value string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT value FROM app.invoice WHERE id = $1`, id).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestAdvisoryLeasesDoWhatLeasesDo(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	s := advisoryStore(t, pool, opts)
	l := acquire(t, s, "invoice-1", nil)
	if l.Token() != 1 {
		t.Errorf("token %d", l.Token())
	}
	if err := s.Tx(t.Context(), setValue("tx"), l); err != nil {
		t.Error(err)
	}
	invoices := table(t, s)
	if _, err := invoices.Stamp(t.Context(), l, fencepost.Key{"1"}); err != nil {
		t.Error(err)
	}
	if err := invoices.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "table"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		got, err := fencepost.Once(t.Context(), l, "k", nil, func(ctx context.Context, tx pgx.Tx) (int, error) {
			return 7, setValue("once")(ctx, tx)
		})
		if err != nil || got.Value != 7 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	wantErr(t, s.Tx(t.Context(), setValue("late"), l), fencepost.ErrLost, fencepost.ErrReleased)
	leases, err := s.AcquireAll(t.Context(), []string{"b", "a", "b"}, nil)
	if err != nil || len(leases) != 2 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	if err := s.Tx(t.Context(), setValue("all"), leases...); err != nil {
		t.Error(err)
	}
	for _, l := range leases {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := s.Do(t.Context(), "invoice-1", setValue("do")); err != nil || valueOf(t, pool, "1") != "do" {
		t.Errorf("%q, %v", valueOf(t, pool, "1"), err)
	}
}

func TestAdvisoryTxDoesAllInOneTransaction(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	s := advisoryTx(t, pool, opts)
	var inside context.Context
	for tok := fencepost.Token(1); tok <= 3; tok++ {
		err := s.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			c, ok := fencepost.ClaimFromContext(ctx)
			if full, err := s.FullName("invoice-1"); !ok || err != nil || c.Resource != full || c.Token != tok {
				t.Errorf("the claim is %+v, %v", c, err)
			}
			if inside = ctx; ctx.Err() != nil {
				t.Error(ctx.Err())
			}
			return setValue(tok.String())(ctx, tx)
		})
		if err != nil || valueOf(t, pool, "1") != tok.String() {
			t.Errorf("%q, %v", valueOf(t, pool, "1"), err)
		}
	}
	if inside.Err() == nil {
		t.Error("the function's context did not end with its transaction")
	}
}

// endSession ends the session on which a store has its locks, as an operator or a failover would.
func endSession(t *testing.T, pool *pgxpool.Pool, label string) {
	t.Helper()
	var ended bool
	err := pool.QueryRow(t.Context(), `SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1`, label).Scan(&ended)
	if err != nil || !ended {
		t.Fatalf("no session of %q was ended: %v", label, err)
	}
}

func advisoryLocks(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// overtaken is a holder whose session was ended and who has been overtaken: B has written since.
func overtaken(t *testing.T) (pool *pgxpool.Pool, a *fencepost.Store, stale, current *fencepost.Lease) {
	t.Helper()
	pool, opts := onLocks(t)
	a = advisoryStore(t, pool, opts)
	stale = acquire(t, a, "invoice-1", nil)
	endSession(t, pool, opts.Label)
	b := advisoryStore(t, pool, &fencepost.Options{Namespace: "n"})
	current = acquire(t, b, "invoice-1", nil)
	if err := b.Tx(t.Context(), setValue("B"), current); err != nil {
		t.Fatal(err)
	}
	return pool, a, stale, current
}

// Case 10, I3: A's session was ended, and B has taken over. A gets an error without a round trip. If A does not ask its
// lease, PostgreSQL refuses the write.
func TestCase10_TheFenceRefusesAHolderWhoseSessionEnded(t *testing.T) {
	t.Parallel()
	pool, a, stale, current := overtaken(t)
	if stale.Token() >= current.Token() {
		t.Errorf("tokens %d and %d", stale.Token(), current.Token())
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := fence.Enter(t.Context(), tx, stale.Claim()); err != nil {
			return err
		}
		return setValue("A")(t.Context(), tx)
	})
	wantErr(t, err, fencepost.ErrStale)
	<-stale.Done()
	wantErr(t, a.Tx(t.Context(), setValue("A"), stale), fencepost.ErrLost)
	wantErr(t, stale.Release(t.Context()), fencepost.ErrLost)
	if got := valueOf(t, pool, "1"); got != "B" {
		t.Errorf("the row is %q", got)
	}
}

// The control: with an advisory lock and no fence, the same holder overwrites what B wrote.
func TestCase10Control_WithoutTheFence(t *testing.T) {
	t.Parallel()
	pool, _, _, _ := overtaken(t)
	if err := pgx.BeginFunc(
		t.Context(),
		pool,
		func(tx pgx.Tx) error { return setValue("A")(t.Context(), tx) },
	); err != nil {
		t.Fatal(err)
	}
	if got := valueOf(t, pool, "1"); got != "A" {
		t.Errorf("the row is %q: the control shows nothing", got)
	}
}

// Case 15: however the work ends, no lock remains in PostgreSQL.
func TestCase15_DoOnLocksReleasesHoweverTheWorkEnds(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	for name, s := range map[string]worker{
		"session": advisoryStore(t, pool, opts), "transaction": advisoryTx(t, pool, opts),
	} {
		why := errors.New("the work failed")
		wantErr(t, s.Do(t.Context(), "r", func(context.Context, pgx.Tx) error { return why }), why)
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Do(ctx, "r", func(ctx context.Context, _ pgx.Tx) error {
			cancel()
			return ctx.Err()
		})
		wantErr(t, err, context.Canceled)
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = s.Do(t.Context(), "r", func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil })
		})
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = s.Do(t.Context(), "r", func(context.Context, pgx.Tx) error { panic("in the work") })
		})
		wg.Wait()
		if err := s.Do(t.Context(), "r", setValue("x")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n, held := advisoryLocks(t, pool), pool.Stat().AcquiredConns(); n != 0 || held != 0 {
			t.Errorf("%s: %d locks, %d connections", name, n, held)
		}
	}
}

// Case 25: as many holders as connections, and more; many waiters for one name; one connection for all. Every caller
// finishes.
func TestCase25_NobodyWaitsForAConnectionForEver(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	exec(t, pool, `INSERT INTO app.invoice (id) SELECT 'w' || n FROM generate_series(0, 19) AS n`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, size := range []int32{1, 4} {
		config := pool.Config()
		config.MaxConns = size
		small, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer small.Close()
		for name, s := range map[string]worker{
			"session": advisoryStore(t, small, opts), "transaction": advisoryTx(t, small, opts),
		} {
			for _, workers := range []int{4, 5, 20} {
				crowd(t, workers, func(i int) error {
					return s.Do(ctx, fmt.Sprintf("w%d", i), func(ctx context.Context, tx pgx.Tx) error {
						_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = value || 'x' WHERE id = $1`, fmt.Sprintf("w%d", i))
						return err
					})
				})
			}
			crowd(t, 20, func(int) error { return s.Do(ctx, "one", setValue("one")) })
			if n := small.Stat().AcquiredConns(); n != 0 {
				t.Errorf("%s, %d: %d connections were not given back", name, size, n)
			}
		}
	}
	if got := valueOf(t, pool, "w0"); got != strings.Repeat("x", 2*2*3) {
		t.Errorf("the row is %q", got)
	}
}

func crowd(t *testing.T, workers int, work func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			if err := work(i); err != nil {
				t.Errorf("worker %d of %d: %v", i, workers, err)
			}
		})
	}
	wg.Wait()
}

// A lease lasts as long as its session. An option that asks for something else is refused, not ignored.
func TestAdvisoryLeasesHaveNoTTLOfTheirOwn(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	s := advisoryStore(t, pool, opts)
	for _, o := range []fencepost.AcquireOptions{{TTL: time.Minute}, {RenewEvery: time.Second}, {NoRenewal: true}} {
		_, err := s.Acquire(t.Context(), "r", &o)
		wantErr(t, err, fencepost.ErrInvalid)
	}
	l := acquire(t, s, "r", &fencepost.AcquireOptions{TTL: 30 * time.Second, Label: "another"})
	var label string
	if err := pool.QueryRow(t.Context(), `SELECT label FROM fencepost.fence`).
		Scan(&label); err != nil ||
		label != "another" {
		t.Errorf("the fence shows %q, %v", label, err)
	}
	if left := l.Remaining(); left <= 0 || left > 30*time.Second {
		t.Errorf("%v left", left)
	}
	_, err := fencepost.NewAdvisory(nil, nil)
	wantErr(t, err, fencepost.ErrInvalid)
	_, err = fencepost.NewAdvisory(pool, &fencepost.Options{Namespace: "a:b"})
	wantErr(t, err, fencepost.ErrInvalid)
}

// Leases in Redis and on advisory locks share the fence: no token is used twice, whichever of the two grants.
func TestLocksAndRedisMeetAtTheFence(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	locks := advisoryStore(t, b.pool, &b.opts)
	last := fencepost.Token(0)
	for range 3 {
		for _, s := range []*fencepost.Store{b.store, locks} {
			l, err := s.Acquire(t.Context(), "r", nil)
			if err != nil || l.Token() <= last {
				t.Fatalf("token after %d: %+v, %v", last, l, err)
			}
			last = l.Token()
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A claim that fails leaves no lock behind.
func TestAnAdvisoryAcquireWithoutMigrationsHoldsNothing(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	exec(t, pool, `DROP SCHEMA fencepost CASCADE`)
	_, err := advisoryStore(t, pool, opts).Acquire(t.Context(), "r", nil)
	wantErr(t, err, fencepost.ErrUnavailable)
	wantErr(t, advisoryTx(t, pool, opts).Do(t.Context(), "r", setValue("x")), fencepost.ErrUnavailable)
	if n := advisoryLocks(t, pool); n != 0 {
		t.Errorf("%d locks", n)
	}
}
