package fencepost_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

func TestAdvisoryTxRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	s := advisoryTx(t, pool, opts)
	refused := map[string]error{
		"no pool":   second(fencepost.NewAdvisoryTx(nil, nil)),
		"namespace": second(fencepost.NewAdvisoryTx(pool, &fencepost.AdvisoryTxOptions{Namespace: ":"})),
		"label":     second(fencepost.NewAdvisoryTx(pool, &fencepost.AdvisoryTxOptions{Label: "\xff"})),
		"zero":      second(fencepost.NewAdvisoryTx(pool, &fencepost.AdvisoryTxOptions{Label: "\x00"})),
		"idle":      second(fencepost.NewAdvisoryTx(pool, &fencepost.AdvisoryTxOptions{MaxIdle: -1})),
		"settling":  second(fencepost.NewAdvisoryTx(pool, &fencepost.AdvisoryTxOptions{SettleFor: -1})),
		"resource":  s.Do(t.Context(), "", setValue("x")),
		"function":  s.Do(t.Context(), "r", nil),
		"join":      s.Join(t.Context(), "r", nil),
	}
	err := s.Do(t.Context(), "r", func(ctx context.Context, _ pgx.Tx) error {
		if l, ok := fencepost.FromContext(ctx); ok || l != nil {
			t.Error("there is a lease, with methods that cannot work")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for name, err := range refused {
		if !errors.Is(err, fencepost.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// addOne reads and writes in two statements. Without a lock before the first, another transaction can come in between.
func addOne(ctx context.Context, tx pgx.Tx) error {
	var n int
	if err := tx.QueryRow(ctx, `SELECT value::int FROM app.invoice WHERE id = '1'`).Scan(&n); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = '1'`, strconv.Itoa(n+1))
	return err
}

// Case 20, I7: the lock is taken before anything is read, even if the database's default isolation would have taken its
// snapshot before the wait. Nothing is lost, and nobody gets 40001.
func TestCase20_TheLockComesBeforeTheSnapshot(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	exec(
		t,
		pool,
		`ALTER DATABASE "`+pool.Config().ConnConfig.Database+`" SET default_transaction_isolation = 'serializable'`,
	)
	pool.Reset()
	stores := []*fencepost.AdvisoryTx{advisoryTx(t, pool, opts), advisoryTx(t, pool, opts), advisoryTx(t, pool, opts)}
	crowd(t, 12, func(i int) error {
		for range 10 {
			calls := 0
			err := stores[i%3].Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
				calls++
				return addOne(ctx, tx)
			})
			if err != nil || calls != 1 {
				return errors.Join(err, errors.New(strconv.Itoa(calls)+" calls"))
			}
		}
		return nil
	})
	if got := valueOf(t, pool, "1"); got != "120" {
		t.Errorf("the counter is at %s", got)
	}
}

func TestCase20Control_WithoutTheLock(t *testing.T) {
	t.Parallel()
	pool, _ := onLocks(t)
	var read, wrote sync.WaitGroup
	read.Add(2)
	for range 2 {
		wrote.Go(func() {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				var n int
				if err := tx.QueryRow(t.Context(), `SELECT value::int FROM app.invoice WHERE id = '1'`).Scan(&n); err != nil {
					return err
				}
				read.Done()
				read.Wait()
				return setValue(strconv.Itoa(n+1))(t.Context(), tx)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wrote.Wait()
	if got := valueOf(t, pool, "1"); got != "1" {
		t.Errorf("the counter is at %s: the control shows nothing", got)
	}
}

// Case 20: 40001 and 40P01 repeat the whole call under another claim, a bounded number of times.
func TestCase20_AdvisoryTxRunsTheWholeAgain(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	s := advisoryTx(t, pool, opts)
	claims := make(map[fencepost.Claim]bool)
	calls := 0
	err := s.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		c, _ := fencepost.ClaimFromContext(ctx)
		claims[c] = true
		if calls++; calls < 3 {
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$`)
			return err
		}
		return setValue("third")(ctx, tx)
	})
	if err != nil || calls != 3 || len(claims) != 3 || valueOf(t, pool, "1") != "third" {
		t.Errorf("%d calls, %d claims, %v", calls, len(claims), err)
	}
	calls = 0
	err = s.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		return err
	})
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "40001" || calls < 2 || calls > 10 {
		t.Errorf("%d calls, %v", calls, err)
	}
	// What was rolled back has drawn no token.
	var tok fencepost.Token
	if err := pool.QueryRow(t.Context(), `SELECT token FROM fencepost.fence`).Scan(&tok); err != nil || tok != 1 {
		t.Errorf("the fence is at %d, %v", tok, err)
	}
}

// Case 20: a transaction that was rolled back never returns nil.
func TestCase20_AdvisoryTxNeverTakesARollbackForACommit(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	err := advisoryTx(t, pool, opts).Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		_ = setValue("dropped")(ctx, tx)
		_, _ = tx.Exec(ctx, `SELECT 1/0`)
		return nil
	})
	wantErr(t, err, pgx.ErrTxCommitRollback)
	if got := valueOf(t, pool, "1"); got != "0" {
		t.Errorf("the row is %q", got)
	}
}

// Case 10 by construction: a caller that loses its session loses its write.
func TestCase10_AnAdvisoryTxLosesItsWriteWithItsLock(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	s := advisoryTx(t, pool, opts)
	err := s.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		if err := setValue("A")(ctx, tx); err != nil {
			return err
		}
		exec(t, pool, `SELECT pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
		if err := advisoryTx(t, pool, opts).Do(t.Context(), "invoice-1", setValue("B")); err != nil {
			return err
		}
		return setValue("A again")(ctx, tx)
	})
	notCommitted(t, err)
	if got := valueOf(t, pool, "1"); got != "B" {
		t.Errorf("the row is %q", got)
	}
}

func TestAnIdleAdvisoryTxIsLost(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	opts.MaxIdle = 50 * time.Millisecond
	err := advisoryTx(t, pool, opts).Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		<-time.After(500 * time.Millisecond) // what a stopped process does
		return setValue("late")(ctx, tx)
	})
	wantErr(t, err, fencepost.ErrLost)
}

// holding runs Do until the test lets it go.
func holding(t *testing.T, s worker, resource string) (letGo func()) {
	t.Helper()
	inside, leave, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- s.Do(t.Context(), resource, func(context.Context, pgx.Tx) error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	return func() {
		close(leave)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A wait ends with its context, and the error says that somebody has the lock. Only one waiter of a process waits in
// PostgreSQL.
func TestAnAdvisoryTxWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	a, b := advisoryTx(t, pool, opts), advisoryTx(t, pool, opts)
	letGo := holding(t, a, "r")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	crowd(t, 10, func(i int) error {
		err := []*fencepost.AdvisoryTx{a, b}[i%2].Do(ctx, "r", setValue("never"))
		if n := pool.Stat().AcquiredConns(); n > 2 {
			t.Errorf("%d connections", n)
		}
		if !errors.Is(err, fencepost.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, fencepost.ErrUnavailable) {
			return err
		}
		return nil
	})
	letGo()
	if err := b.Do(t.Context(), "r", setValue("now")); err != nil || valueOf(t, pool, "1") != "now" {
		t.Error(err)
	}
}

// The bounds of the wait do not apply to the function, and the function's limits do not bound the wait.
func TestAnAdvisoryTxKeepsTheTimeoutsOfItsSession(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	config := pool.Config()
	config.ConnConfig.RuntimeParams["statement_timeout"] = "200"
	config.ConnConfig.RuntimeParams["lock_timeout"] = "100"
	short, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	letGo := holding(t, advisoryTx(t, pool, opts), "r")
	done := make(chan error)
	go func() {
		done <- advisoryTx(t, short, opts).Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
			var statement, lock string
			err := tx.QueryRow(ctx,
				`SELECT current_setting('statement_timeout'), current_setting('lock_timeout')`).Scan(&statement, &lock)
			if statement != "200ms" || lock != "100ms" {
				t.Errorf("the function has %q and %q", statement, lock)
			}
			return err
		})
	}()
	select {
	case err := <-done:
		t.Errorf("the wait ended with %v", err)
	case <-time.After(time.Second):
	}
	letGo()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// I9: a COMMIT whose reply was lost is settled, as everywhere else.
func TestInvariant9_AnAdvisoryTxSettlesALostReply(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	host := pool.Config().ConnConfig
	proxy := faults.NewProxy(t, host.Host+":"+strconv.Itoa(int(host.Port)))
	s := advisoryTx(t, testenv.PoolOn(t, proxy.URL(t, pool.Config().ConnString())), opts)
	dropped := proxy.DropNextReply(faults.Commit())
	calls := 0
	err := s.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		return setValue("A")(ctx, tx)
	})
	<-dropped
	if err != nil || calls != 1 || valueOf(t, pool, "1") != "A" {
		t.Errorf("%d calls, %v", calls, err)
	}
	dropped = proxy.DropNextRequest(faults.Commit())
	notCommitted(t, s.Do(t.Context(), "r", setValue("never")))
	<-dropped
	if got := valueOf(t, pool, "1"); got != "A" {
		t.Errorf("the row is %q", got)
	}
}

// The claim of a transaction lets it write to a protected table, whose trigger stamps the rows.
func TestAnAdvisoryTxPassesTheProtection(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	exec(t, pool, `SELECT fencepost.protect('app.invoice', 'n', 'invoice-', ARRAY['id'])`)
	if err := advisoryTx(t, pool, opts).Do(t.Context(), "invoice-1", setValue("in")); err != nil {
		t.Fatal(err)
	}
	var tok fencepost.Token
	if err := pool.QueryRow(t.Context(), `SELECT last_fencing_token FROM app.invoice WHERE id = '1'`).
		Scan(&tok); err != nil ||
		tok != 1 {
		t.Errorf("the row carries %d, %v", tok, err)
	}
}

// Case 22: behind a pooler in transaction mode, 8 goroutines make 500 calls without an error, and leave nothing behind.
func TestCase22_AdvisoryTxBehindAPooler(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	pooler := testenv.PgBouncer(t, pool.Config().ConnString(), &services.PgBouncerOptions{PoolSize: 4})
	config, err := pgxpool.ParseConfig(pooler.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	behind, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Close)
	s := advisoryTx(t, behind, opts)
	crowd(t, 8, func(i int) error {
		for range 63 {
			if err := s.Do(t.Context(), "r"+strconv.Itoa(i%2), addOneOf(i%2+1)); err != nil {
				return err
			}
		}
		return nil
	})
	if one, two := valueOf(t, pool, "1"), valueOf(t, pool, "2"); one != "252" || two != "252" {
		t.Errorf("the counters are at %s and %s", one, two)
	}
	if n := advisoryLocks(t, pool); n != 0 {
		t.Errorf("%d locks", n)
	}
	for range 8 {
		var statement, idle string
		err := behind.QueryRow(t.Context(),
			`SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')`).
			Scan(&statement, &idle)
		if err != nil || statement != "0" || idle != "0" {
			t.Errorf("a setting reached the next user: %q, %q, %v", statement, idle, err)
		}
	}
}

func addOneOf(id int) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		var n int
		if err := tx.QueryRow(ctx, `SELECT value::int FROM app.invoice WHERE id = $1`, strconv.Itoa(id)).
			Scan(&n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1 WHERE id = $2`, strconv.Itoa(n+1), strconv.Itoa(id))
		return err
	}
}

// Both levels take the same lock, so a program may use both.
func TestBothLevelsExcludeEachOther(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	letGo := holding(t, advisoryTx(t, pool, opts), "r")
	s := advisoryStore(t, pool, opts)
	_, err := s.TryAcquire(t.Context(), "r", nil)
	wantErr(t, err, fencepost.ErrHeld)
	letGo()
	var got bool
	l := acquire(t, s, "r", nil)
	if err := pool.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock($1)`, advisory.Key("n", "r")).
		Scan(&got); err != nil ||
		got {
		t.Errorf("the lock of the documented key is free: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// asked tells of a context's first use.
type asked struct {
	context.Context //nolint:containedctx // a context itself
	once            sync.Once
	yes             chan struct{}
}

func (a *asked) Done() <-chan struct{} {
	a.once.Do(func() { close(a.yes) })
	return a.Context.Done()
}

// I9: a caller that first met the lock and then an exhausted pool gets the error of the pool. Callers that wait behind
// it do not get an error that names it as the holder.
func TestInvariant9_AnAdvisoryTxSaysWhatWasMetLast(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	var exhausted atomic.Bool
	waits := make(chan struct{}, 8)
	config := pool.Config()
	config.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) {
		if !exhausted.Load() {
			return true, nil
		}
		waits <- struct{}{}
		<-ctx.Done()
		return true, ctx.Err()
	}
	scarce, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer scarce.Close()
	s := advisoryTx(t, scarce, opts)
	unavailable := func(err error) {
		t.Helper()
		wantErr(t, err, fencepost.ErrUnavailable, context.Canceled)
		if errors.Is(err, fencepost.ErrHeld) {
			t.Errorf("got %v", err)
		}
	}
	letGo := holding(t, s, "r")
	start := func() (stop func(), done chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		done = make(chan error, 1)
		a := &asked{Context: ctx, yes: make(chan struct{})}
		go func() { done <- s.Do(a, "r", setValue("never")) }()
		<-a.yes
		return cancel, done
	}
	stopSecond, second := start()
	stopThird, third := start()
	stopThird()
	err = <-third
	wantErr(t, err, fencepost.ErrHeld, context.Canceled)
	exhausted.Store(true)
	letGo()
	<-waits
	stopSecond()
	unavailable(<-second)
	stopSecond, second = start()
	<-waits
	stopThird, third = start()
	stopThird()
	unavailable(<-third)
	stopSecond()
	unavailable(<-second)
}
