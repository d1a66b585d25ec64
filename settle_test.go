package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// beginAnotherIncarnation changes the server's incarnation as a crash does.
func beginAnotherIncarnation(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `DELETE FROM fencepost.incarnation`)
	exec(t, pool, `SELECT fencepost.begin_incarnation()`)
}

// notCommitted requires an error that says that nothing was written, without doubt.
func notCommitted(t *testing.T, err error) {
	t.Helper()
	if wantErr(t, err, fencepost.ErrUnavailable); errors.Is(err, fencepost.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
}

// I9: the reply to COMMIT is lost after PostgreSQL has committed, and PostgreSQL is asked: committed is nil, once.
func TestInvariant9_ALostReplyToCommitIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	l := acquire(t, proxied, "invoice-1", nil)
	calls := 0
	dropped := proxy.DropNextReply(faults.Commit())
	err := proxied.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		calls++
		return setValue("A")(ctx, tx)
	}, l)
	<-dropped
	if r := b.read(t, "1"); err != nil || calls != 1 || r.Value != "A" {
		t.Errorf("%d calls, %v, and the row is %+v", calls, err, r)
	}
}

// I9: a COMMIT that never arrived is reported as not committed, as PostgreSQL says, and the whole may be run again.
func TestInvariant9_ACommitThatNeverArrivedIsNotCommitted(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	l := acquire(t, proxied, "invoice-1", nil)
	dropped := proxy.DropNextRequest(faults.Commit())
	err := proxied.Tx(t.Context(), setValue("never"), l)
	<-dropped
	notCommitted(t, err)
	if r := b.read(t, "1"); r.Value != "0" {
		t.Errorf("the row is %+v", r)
	}
	if err := proxied.Tx(t.Context(), setValue("again"), l); err != nil {
		t.Error(err)
	}
}

// I9: a write of one round trip whose reply is lost stays unknown: its mark is lost with the reply.
func TestInvariant9_ALostReplyToAOneTripWriteIsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	l := acquire(t, proxied, "invoice-1", nil)
	dropped := proxy.DropNextReply(faults.Containing("one round trip"))
	err := table(t, proxied).Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "one round trip"})
	<-dropped
	if wantErr(
		t,
		err,
		fencepost.ErrOutcomeUnknown,
	); errors.Is(err, fencepost.ErrUnavailable) ||
		errors.Is(err, fencepost.ErrLost) {
		t.Errorf("got %v", err)
	}
	if r := b.read(t, "1"); r.Value != "one round trip" {
		t.Errorf("the fault did not strike as meant: the row is %+v", r)
	}
}

// I9: nothing can be known about a transaction of another incarnation, whichever way it ended.
func TestInvariant9_AnotherIncarnationIsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	l := acquire(t, proxied, "invoice-1", nil)
	inAnotherIncarnation := func(ctx context.Context, tx pgx.Tx) error {
		beginAnotherIncarnation(t, b.pool)
		return setValue("A")(ctx, tx)
	}
	for name, drop := range map[string]func(func([]byte) bool) <-chan struct{}{
		"committed": proxy.DropNextReply, "not committed": proxy.DropNextRequest,
	} {
		dropped := drop(faults.Commit())
		err := proxied.Tx(t.Context(), inAnotherIncarnation, l)
		<-dropped
		if wantErr(t, err, fencepost.ErrOutcomeUnknown); errors.Is(err, fencepost.ErrUnavailable) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// slowCommit makes COMMITs that wrote app.invoice wait until they are released.
func slowCommit(t *testing.T, b *bundle) (letGo func()) {
	t.Helper()
	exec(t, b.pool, `
		CREATE FUNCTION app.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_advisory_xact_lock(42);
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON app.invoice DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION app.wait()`)
	blocker, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blocker.Exec(t.Context(), `SELECT pg_advisory_xact_lock(42)`); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := blocker.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// cutDuringCommit cuts the connections through a proxy while a COMMIT waits. pgx then asks the server to
// cancel what it did on them, which would strike the COMMIT: the proxy swallows that.
func cutDuringCommit(t *testing.T, proxy *faults.Proxy) {
	t.Helper()
	const cancelRequest = "\x04\xd2\x16\x2e"
	swallowed := proxy.DropNextRequest(faults.Containing(cancelRequest))
	proxy.CutOnce()
	select {
	case <-swallowed:
	case <-time.After(time.Minute):
		t.Fatal("pgx has not asked the server to cancel the COMMIT")
	}
}

const (
	commitWaits = `SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	settleAsked = `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid() AND query LIKE 'SELECT fencepost.settle%'`
	endCommit = `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// A transaction still in progress is asked about again until it has ended, on a context of its own.
func TestSettlingWaitsForATransactionInProgress(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"commits": true, "does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fencepost.Options{SettleFor: time.Minute})
			proxied, proxy := behindProxy(t, b)
			l := acquire(t, proxied, "invoice-1", nil)
			letGo := slowCommit(t, b)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- proxied.Tx(ctx, setValue("late"), l) }()
			until(t, b.pool, commitWaits)
			cutDuringCommit(t, proxy)
			until(t, b.pool, settleAsked)
			cancel()
			if !commits {
				exec(t, b.pool, endCommit)
			}
			letGo()
			err := <-done
			switch {
			case commits && (err != nil || b.read(t, "1").Value != "late"):
				t.Errorf("it committed, and yet: %v", err)
			case !commits:
				notCommitted(t, err)
			}
		})
	}
}

// A server that shuts down in the middle of COMMIT reports the shutdown and not the outcome, so that is settled too.
func TestAServerThatEndsDuringCommitIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	l := b.acquire(t, "invoice-1", nil)
	letGo := slowCommit(t, b)
	done := make(chan error, 1)
	go func() { done <- b.store.Tx(t.Context(), setValue("x"), l) }()
	until(t, b.pool, commitWaits)
	exec(t, b.pool, endCommit)
	notCommitted(t, <-done)
	letGo()
	if r := b.read(t, "1"); r.Value != "0" {
		t.Errorf("the row is %+v", r)
	}
}

// The wait is bounded: a transaction that is still in progress then is unknown.
func TestSettlingIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{SettleFor: 50 * time.Millisecond})
	proxied, proxy := behindProxy(t, b)
	l := acquire(t, proxied, "invoice-1", nil)
	letGo := slowCommit(t, b)
	done := make(chan error, 1)
	go func() { done <- proxied.Tx(t.Context(), setValue("late"), l) }()
	until(t, b.pool, commitWaits)
	cutDuringCommit(t, proxy)
	err := <-done
	if wantErr(t, err, fencepost.ErrOutcomeUnknown); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's context has not ended: %v", err)
	}
	letGo()
}

// A pool of one connection can settle: the dead one has been given back by then.
func TestSettlingNeedsNoSecondConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxy := proxyOf(t, b)
	config, err := pgxpool.ParseConfig(proxy.URL(t, b.pool.Config().ConnString()))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, s, "invoice-1", nil)
	dropped := proxy.DropNextReply(faults.Commit())
	if err := s.Tx(t.Context(), setValue("A"), l); err != nil {
		t.Error(err)
	}
	<-dropped
}

// until waits for a query to yield true.
func until(t *testing.T, pool *pgxpool.Pool, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := testenv.UntilQuery(ctx, pool, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
