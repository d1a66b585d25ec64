package fencepost_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// forgetful is a set of settings under which a crash loses the latest commits: nothing is flushed before it has to be.
var forgetful = []string{
	"-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s", "-c", "full_page_writes=off",
	"-c", "autovacuum=off", "-c", "bgwriter_lru_maxpages=0", "-c", "checkpoint_timeout=1h",
}

// ownServer is a bundle on a PostgreSQL of the test's own, and a store whose connections go through a proxy and
// whose new ones can be held back by a gate.
type ownServer struct {
	*bundle
	server *services.Postgres
	proxy  *faults.Proxy
	gated  *fencepost.Store
	single *pgxpool.Pool // of gated: one connection
	shut   atomic.Bool   // the gate
	open   chan struct{}
}

func setupOwn(t *testing.T, args ...string) *ownServer {
	t.Helper()
	return setupOwnFor(t, time.Minute, args...)
}

func setupOwnFor(t *testing.T, settleFor time.Duration, args ...string) *ownServer {
	t.Helper()
	o := &ownServer{server: testenv.OwnPostgres(t, args...), open: make(chan struct{})}
	db, err := sql.Open("pgx", o.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	o.bundle = setupOn(t, testenv.PoolOn(t, o.server.URL()), testenv.Redis(t),
		fencepost.Options{Namespace: rand.Text(), SettleFor: settleFor})
	o.proxy = proxyOf(t, o.bundle)
	config, err := pgxpool.ParseConfig(o.proxy.URL(t, o.server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	config.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error {
		if !o.shut.Load() {
			return nil
		}
		select {
		case <-o.open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o.single = pool
	if o.gated, err = fencepost.New(pool, o.rdb, &o.opts); err != nil {
		t.Fatal(err)
	}
	return o
}

// alone runs SQL on its own connection, because those of a pool do not outlive a crash.
func (o *ownServer) autocommit(t *testing.T, sql string, args ...any) (text string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), o.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

// move adds 10 to the amount, and returns the transaction's id.
func move(xid chan<- string) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		var id string
		err := tx.QueryRow(ctx, `UPDATE app.invoice SET value = (value::int + 10)::text WHERE id = '1'
			RETURNING pg_current_xact_id()::text`).Scan(&id)
		xid <- id
		return err
	}
}

// loseReply runs work and loses the reply to its COMMIT. It then calls a function before anybody can ask, and returns
// what the work returned.
func (o *ownServer) loseReply(ctx context.Context, run func(fencepost.TxFunc) error, happens func(xid string)) error {
	done, xid := make(chan error, 1), make(chan string, 1)
	o.open = make(chan struct{})
	dropped := o.proxy.DropNextReply(faults.Commit())
	// The connection at work has to be there by then: one that led to a crashed server or a standby is not given back.
	for err := errors.New("none yet"); err != nil; {
		if err = o.single.Ping(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	o.shut.Store(true)
	go func() { done <- run(move(xid)) }()
	<-dropped
	happens(<-xid)
	o.shut.Store(false)
	close(o.open)
	return <-done
}

// inTx runs work in a transaction under a lease.
func (o *ownServer) inTx(ctx context.Context, l *fencepost.Lease) func(fencepost.TxFunc) error {
	return func(fn fencepost.TxFunc) error { return o.gated.Tx(ctx, fn, l) }
}

func (o *ownServer) crash(t *testing.T) {
	t.Helper()
	if err := errors.Join(o.server.Crash(t.Context()), o.server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// reuse runs other transactions until one of them gets the given id. It returns false if none does.
func (o *ownServer) reuse(t *testing.T, xid string) bool {
	t.Helper()
	const order = `SELECT sign(pg_current_xact_id()::text::numeric - $1::numeric)::text`
	for {
		switch o.autocommit(t, order, xid) {
		case "0":
			return true
		case "1":
			return false
		}
	}
}

const amount = `SELECT value FROM app.invoice WHERE id = '1'`

// I9: a crash between a transaction's commit and its flush. The id is handed out again, and another transaction commits
// under it: asked about the id alone, PostgreSQL says that ours committed (the control). The amount has not
// moved, and the caller is told that the outcome is unknown.
func TestInvariant9_ACrashBeforeTheFlushIsUnknown(t *testing.T) {
	t.Parallel()
	o := setupOwn(t, forgetful...)
	for range 10 { // until nobody happened to flush the id in between
		l := acquire(t, o.gated, "invoice-1", nil)
		if o.crashBeforeFlush(t, o.inTx(t.Context(), l)) {
			return
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("the crash kept every id: the test shows nothing")
}

// crashBeforeFlush reports whether another transaction got the id of the work's transaction.
func (o *ownServer) crashBeforeFlush(t *testing.T, run func(fencepost.TxFunc) error) (reused bool) {
	t.Helper()
	before := o.autocommit(t, amount)
	var lie string
	err := o.loseReply(t.Context(), run, func(xid string) {
		o.crash(t)
		reused = o.reuse(t, xid)
		o.autocommit(t, `SELECT 'x' FROM fencepost.begin_incarnation()`) // as the next transaction of any process does
		lie = o.autocommit(t, `SELECT coalesce(pg_xact_status($1::xid8), 'none')`, xid)
	})
	wantErr(t, err, fencepost.ErrOutcomeUnknown)
	if after := o.autocommit(t, amount); reused && (after != before || lie != "committed") {
		t.Errorf("the amount went from %s to %s, and its transaction is said to be %s", before, after, lie)
	}
	return reused
}

// I9: after a crash nothing is guessed, even if the commit had reached the disk.
func TestInvariant9_ACrashAfterTheFlushIsUnknown(t *testing.T) {
	t.Parallel()
	o := setupOwn(t)
	l := acquire(t, o.gated, "invoice-1", nil)
	wantErr(t, o.loseReply(t.Context(), o.inTx(t.Context(), l), func(string) { o.crash(t) }), fencepost.ErrOutcomeUnknown)
	if got := o.autocommit(t, amount); got != "10" {
		t.Errorf("the fault did not strike as meant: the amount is %s", got)
	}
	// In the server's next incarnation, outcomes can be told apart again.
	if err := o.loseReply(t.Context(), o.inTx(t.Context(), l), func(string) {}); err != nil {
		t.Errorf("in the next incarnation: %v", err)
	}
}

// I9: a clean restart keeps the ids, and the incarnation with them.
func TestInvariant9_ARestartInOrderIsSettled(t *testing.T) {
	t.Parallel()
	o := setupOwn(t)
	l := acquire(t, o.gated, "invoice-1", nil)
	err := o.loseReply(t.Context(), o.inTx(t.Context(), l), func(string) {
		if err := errors.Join(o.server.Shut(t.Context()), o.server.Start(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if got := o.autocommit(t, amount); err != nil || got != "10" {
		t.Errorf("the amount is %s, %v", got, err)
	}
}

// Calls on a standby are refused with a clear error. A standby knows no transaction, and becomes another incarnation
// when it is promoted.
func TestAStandbyIsRefusedClearly(t *testing.T) {
	t.Parallel()
	o := setupOwnFor(t, 2*time.Second) // a standby is asked again until then: the primary may answer next
	l, table := acquire(t, o.gated, "invoice-1", nil), table(t, o.gated)
	err := o.loseReply(t.Context(), o.inTx(t.Context(), l), func(string) { o.becomeStandby(t) })
	wantErr(t, err, fencepost.ErrOutcomeUnknown) // a pooler may lead there
	for name, err := range map[string]error{
		"Tx":      o.gated.Tx(t.Context(), setValue("x"), l),
		"Acquire": second(o.gated.TryAcquire(t.Context(), "invoice-2", nil)),
		"Update":  table.Update(t.Context(), l, fencepost.Key{"1"}, fencepost.Set{"value": "x"}),
	} {
		notCommitted(t, err)
		t.Logf("%s: %v", name, err)
	}
	o.autocommit(t, `SELECT pg_promote()::text`)
	incarnation := o.autocommit(t, `SELECT count(*)::text FROM fencepost.incarnation`)
	if incarnation != "0" {
		t.Errorf("a promoted standby keeps %s incarnations", incarnation)
	}
	if err := o.loseReply(t.Context(), o.inTx(t.Context(), l), func(string) {}); err != nil {
		t.Errorf("promoted: %v", err)
	}
}

// I9: a COMMIT whose wait for its synchronous standby was cut short is not as durable as asked. The answer is a
// warning in the server's language, which fence.Notices sees; the settling waits for the standby in its turn. The
// control has no fence.Notices wired in, and is told nil.
func TestInvariant9_ACommitThatDidNotWaitForItsStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	o := setupOwn(t)
	o.opts.SettleFor = 300 * time.Millisecond
	for _, wired := range []bool{true, false} {
		config, err := pgxpool.ParseConfig(o.server.URL())
		if err != nil {
			t.Fatal(err)
		}
		if wired {
			fence.Notices(config.ConnConfig)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		s, err := fencepost.New(pool, o.rdb, &o.opts)
		if err != nil {
			t.Fatal(err)
		}
		l := acquire(t, s, "invoice-1", nil)
		for name, write := range o.writes(t, s, l) {
			if err := write(); err != nil { // prepares as well
				t.Fatal(err)
			}
			o.waitFor(t, "a standby that is not there")
			done := make(chan error, 1)
			go func() { done <- write() }()
			until(
				t,
				o.pool,
				`SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
			)
			err = <-done
			o.waitFor(t, "")
			if wired != errors.Is(err, fencepost.ErrOutcomeUnknown) || !wired && err != nil {
				t.Errorf("%s, with notices %v: got %v", name, wired, err)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		pool.Close()
	}
}

// writes are ways of writing row 1 that commit by themselves.
func (o *ownServer) writes(t *testing.T, s *fencepost.Store, l *fencepost.Lease) map[string]func() error {
	t.Helper()
	table, err := fencepost.NewTable[Invoice](t.Context(), s, invoiceSpec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, key, set := t.Context(), fencepost.Key{"1"}, fencepost.Set{"value": "x"}
	return map[string]func() error{
		"Tx":     func() error { return s.Tx(ctx, setValue("x"), l) },
		"Update": func() error { return table.Update(ctx, l, key, set) },
		"Upsert": func() error { return second(table.Upsert(ctx, l, key, set)) },
	}
}

// waitFor makes commits wait for a synchronous standby, "" for none.
func (o *ownServer) waitFor(t *testing.T, standby string) {
	t.Helper()
	set := `ALTER SYSTEM SET synchronous_standby_names = '` + pgx.Identifier{standby}.Sanitize() + `'`
	if standby == "" {
		set = `ALTER SYSTEM RESET synchronous_standby_names`
	}
	exec(t, o.pool, set)
	exec(t, o.pool, `SELECT pg_reload_conf()`)
	for o.commitWaits(t) != (standby != "") { // until the server's processes have heard of it
	}
}

// commitWaits commits something, and reports whether the commit had to be released from its wait for a standby.
func (o *ownServer) commitWaits(t *testing.T) bool {
	t.Helper()
	conn, err := o.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `UPDATE app.invoice SET value = value WHERE id = '3'`)
		done <- err
	}()
	for waited := false; ; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return waited
		default:
		}
		err := o.pool.QueryRow(t.Context(), `SELECT $2 OR coalesce(bool_or(pg_cancel_backend(pid)), false)
			FROM pg_stat_activity WHERE wait_event = 'SyncRep'
				AND pid = $1::int`, conn.Conn().PgConn().PID(), waited).Scan(&waited)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (o *ownServer) becomeStandby(t *testing.T) {
	t.Helper()
	exec(t, testenv.PoolOn(t, o.server.URL()),
		`DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO %L', current_setting('data_directory') || '/standby.signal'); END $$`)
	if err := errors.Join(o.server.Shut(t.Context()), o.server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := o.autocommit(t, `SELECT pg_is_in_recovery()::text`); got != "true" {
		t.Fatal("the server is no standby")
	}
}
