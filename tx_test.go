package fencepost_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func setValue(value string) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '1'`, value)
		return err
	}
}

func TestTxCommitsOnNilAndRollsBackOtherwise(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	if err := b.store.Tx(t.Context(), setValue("kept"), l); err != nil {
		t.Fatal(err)
	}
	why := errors.New("the work failed")
	err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		return errors.Join(setValue("dropped")(ctx, tx), why)
	}, l)
	wantErr(t, err, why)
	// If a function ignores an error, its transaction is aborted, and the call does not return nil.
	err = b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		_ = setValue("dropped")(ctx, tx)
		_, _ = tx.Exec(ctx, `SELECT 1/0`)
		return nil
	}, l)
	wantErr(t, err, pgx.ErrTxCommitRollback)
	if r := b.read(t, "1"); r.Value != "kept" {
		t.Errorf("the row is %+v", r)
	}
	if n := b.pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections were not given back", n)
	}
}

func TestTxHandsOutTheLeaseAndAContextThatEndsWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	err := b.store.Tx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
		if got, ok := fencepost.FromContext(ctx); !ok || got != l {
			t.Errorf("the context carries %v, %v", got, ok)
		}
		if c, ok := fencepost.ClaimFromContext(ctx); !ok || c != l.Claim() {
			t.Errorf("the context carries the claim %+v, %v", c, ok)
		}
		if err := l.Release(ctx); err != nil { // against the rules, to see the end
			t.Error(err)
		}
		<-ctx.Done()
		wantErr(t, context.Cause(ctx), fencepost.ErrLost, fencepost.ErrReleased)
		return nil
	}, l)
	wantErr(t, err, fencepost.ErrLost)
	if got, ok := fencepost.FromContext(l.Context()); !ok || got != l {
		t.Error("the lease's own context does not carry it")
	}
	if _, ok := fencepost.FromContext(t.Context()); ok {
		t.Error("a lease came from nowhere")
	}
	if _, ok := fencepost.ClaimFromContext(t.Context()); ok {
		t.Error("a claim came from nowhere")
	}
}

func TestTxNeedsLeasesOfItsStore(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	other := acquire(t, b.another(t), "invoice-2", nil)
	for name, leases := range map[string][]*fencepost.Lease{"none": nil, "nil": {nil}, "another store's": {other}} {
		if err := b.store.Tx(t.Context(), setValue("x"), leases...); !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A transaction guards all its leases, whatever order they are named in.
func TestTxGuardsEveryLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	one, two := b.acquire(
		t,
		"invoice-1",
		nil,
	), b.acquire(
		t,
		"invoice-2",
		&fencepost.AcquireOptions{TTL: time.Minute, NoRenewal: true},
	)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			leases := []*fencepost.Lease{one, two, one}
			if i%2 == 0 {
				leases = []*fencepost.Lease{two, one}
			}
			if err := b.store.Tx(t.Context(), setValue("both"), leases...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-2")).Err(); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b.another(t), "invoice-2", nil)
	wantStale(t, b.store.Tx(t.Context(), setValue("x"), one, two), two.Token(), second.Token())
	if r := b.read(t, "1"); r.Value != "both" {
		t.Errorf("the row is %+v", r)
	}
}

// 40001 and 40P01 run the whole function again, in a fresh transaction. The number of runs is limited, and the error
// keeps its code.
func TestTxRetriesTheWholeOfIt(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	for code, sql := range map[string]string{
		"40001": `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`, "40P01": `DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$`,
	} {
		calls := 0
		err := b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			if calls++; calls < 3 {
				_, err := tx.Exec(ctx, sql)
				return err
			}
			return setValue(code)(ctx, tx)
		}, l)
		if err != nil || calls != 3 || b.read(t, "1").Value != code {
			t.Errorf("%s: %d calls, %v", code, calls, err)
		}
		calls = 0
		err = b.store.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			calls++
			_, err := tx.Exec(ctx, sql)
			return err
		}, l)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != code || calls < 2 || calls > 10 {
			t.Errorf("%s for ever: %d calls, %v", code, calls, err)
		}
	}
}

// behindProxy is another store on the same database, through a proxy.
func behindProxy(t *testing.T, b *bundle) (*fencepost.Store, *faults.Proxy) {
	t.Helper()
	proxy := proxyOf(t, b)
	pool := testenv.PoolOn(t, proxy.URL(t, b.pool.Config().ConnString()))
	s, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, proxy
}

// proxyOf is a proxy in front of the bundle's PostgreSQL.
func proxyOf(t *testing.T, b *bundle) *faults.Proxy {
	t.Helper()
	host := b.pool.Config().ConnConfig
	return faults.NewProxy(t, net.JoinHostPort(host.Host, strconv.Itoa(int(host.Port))))
}

// An acquire survives the loss of the reply to its claim: the lease is lifted above that claim, and the claim is made
// again.
func TestALostReplyToAClaimHealsItself(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	dropped := proxy.DropNextReply(faults.Containing("a-label-to-find"))
	l := acquire(t, proxied, "invoice-1", &fencepost.AcquireOptions{Label: "a-label-to-find"})
	<-dropped
	if err := proxied.Tx(t.Context(), setValue("works"), l); err != nil {
		t.Error(err)
	}
	if l.Token() != 2 {
		t.Errorf("token %d: the fault did not strike, or more was spent than one number", l.Token())
	}
}

// C15: however the work ends, the lease is released when Do returns, and the work's error is not replaced.
func TestCase15_DoReleasesHoweverTheWorkEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	why := errors.New("the work failed")
	ctx, cancel := context.WithCancel(t.Context())
	for name, run := range map[string]func() error{
		"nil": func() error { return b.store.Do(t.Context(), "invoice-1", setValue("done")) },
		"error": func() error {
			return b.store.Do(t.Context(), "invoice-1", func(context.Context, pgx.Tx) error { return why })
		},
		"panic": func() (err error) {
			defer func() { err = recover().(error) }()
			return b.store.Do(t.Context(), "invoice-1", func(context.Context, pgx.Tx) error { panic(why) })
		},
		"goexit": func() error {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = b.store.Do(t.Context(), "invoice-1", func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil })
			}()
			<-ended
			return why
		},
		"cancelled": func() error {
			return b.store.Do(ctx, "invoice-1", func(ctx context.Context, _ pgx.Tx) error {
				cancel()
				<-ctx.Done()
				return errors.Join(why, ctx.Err())
			})
		},
	} {
		err := run()
		if (name == "nil") != (err == nil) || err != nil && !errors.Is(err, why) {
			t.Errorf("%s: got %v", name, err)
		}
		if !b.free(t, "invoice-1") {
			t.Errorf("%s: the lease is still there", name)
		}
		if n := b.pool.Stat().AcquiredConns(); n != 0 {
			t.Errorf("%s: %d connections were not given back", name, n)
		}
	}
	if r := b.read(t, "1"); r.Value != "done" {
		t.Errorf("the row is %+v", r)
	}
}

// nil means committed, and an error means not committed. A release that fails afterwards does not change the outcome of
// the work.
func TestDoTellsAFailedReleaseFromFailedWork(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	spoil := func(ctx context.Context) { // replaces our lease by another holder's
		if err := b.rdb.Set(ctx, b.leaseKey("invoice-1"), "00000000000000000000000000000001 9 x", time.Minute).
			Err(); err != nil {
			t.Error(err)
		}
	}
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		spoil(ctx)
		return setValue("committed")(ctx, tx)
	})
	if err != nil || b.read(t, "1").Value != "committed" {
		t.Errorf("got %v for work that committed", err)
	}
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-1")).Err(); err != nil {
		t.Fatal(err)
	}
	why := errors.New("the work failed")
	err = b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, _ pgx.Tx) error {
		spoil(ctx)
		return why
	})
	wantErr(t, err, why, fencepost.ErrLost)
}

// I9: an outcome that cannot be settled stays unknown, even if the lease is lost as well, by its deadline or by its
// release.
func TestInvariant9_UnknownStandsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	dropped := proxy.DropNextReply(faults.Commit())
	err := proxied.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		if err := b.rdb.Set(ctx, b.leaseKey("invoice-1"), "00000000000000000000000000000001 9 x", time.Minute).
			Err(); err != nil {
			return err
		}
		beginAnotherIncarnation(t, b.pool)
		return setValue("A")(ctx, tx)
	})
	<-dropped
	if wantErr(t, err, fencepost.ErrOutcomeUnknown); errors.Is(err, fencepost.ErrLost) {
		t.Errorf("got %v", err)
	}
	if err := b.rdb.Del(t.Context(), b.leaseKey("invoice-1")).Err(); err != nil {
		t.Fatal(err)
	}
	// The lease runs out while the answer to the commit is on its way.
	l := acquire(t, proxied, "invoice-1", &fencepost.AcquireOptions{TTL: 2 * time.Second, NoRenewal: true})
	invoices := table(t, proxied)
	if err := invoices.Update(
		t.Context(),
		l,
		fencepost.Key{"1"},
		fencepost.Set{"value": "B"},
	); err != nil { // prepares the statements
		t.Fatal(err)
	}
	proxy.Hang()
	err = invoices.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "C"})
	proxy.Resume()
	if wantErr(t, err, fencepost.ErrOutcomeUnknown); errors.Is(err, fencepost.ErrLost) {
		t.Errorf("got %v", err)
	}
}

// One dead connection in the pool does not cost an acquire.
func TestAcquireOutlivesADeadConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	l := acquire(t, proxied, "invoice-1", nil)
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.CutOnce()
	acquire(t, proxied, "invoice-1", nil)
}

// A nil function is refused before anything is sent: the pool is closed.
func TestAMissingFunctionIsInvalidBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	pool, open := kinds(t)
	pool.Close()
	for name, open := range open {
		w := open("")
		errs := map[string]error{"Do": w.Do(t.Context(), "r", nil), "Join": w.Join(t.Context(), "r", nil)}
		if s, ok := w.(*fencepost.Store); ok {
			errs["Tx"] = s.Tx(t.Context(), nil)
			errs["With"] = s.With(t.Context(), "r", nil, nil)
		}
		for call, err := range errs {
			if !errors.Is(err, fencepost.ErrInvalid) || errors.Is(err, fencepost.ErrUnavailable) {
				t.Errorf("%s of %s: got %v", call, name, err)
			}
		}
	}
}
