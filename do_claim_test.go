package fencepost_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// redisTrips counts a client's round trips.
type redisTrips struct {
	redis.Hook
	n atomic.Int64
}

func (*redisTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *redisTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.n.Add(1)
		return next(ctx, cmd)
	}
}

func (r *redisTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.n.Add(1)
		return next(ctx, cmds)
	}
}

// A free resource costs Do two round trips to Redis, and two to PostgreSQL besides those of the function.
func TestRoundTripsOfDo(t *testing.T) {
	t.Parallel()
	var ofRedis redisTrips
	rdb := testenv.RedisOn(t, testenv.RedisURL(t))
	rdb.AddHook(&ofRedis)
	b := setupOn(t, testenv.Pool(t), rdb, fencepost.Options{})
	pool, trips := testenv.CountedPool(t, b.pool)
	store, err := fencepost.New(pool, b.rdb, &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	do := func() error { return store.Do(t.Context(), "invoice-1", setValue("x")) }
	once := func() error {
		return second(fencepost.DoOnce(t.Context(), store, "invoice-1", time.Now().String(), nil, nothing))
	}
	exec(t, pool, `SELECT fencepost.begin_incarnation()`)
	for name, c := range map[string]struct {
		call            func() error
		redis, postgres int64
	}{
		"Do":     {do, 2, 3},
		"DoOnce": {once, 2, 4}, // the ledger, begin, the result, COMMIT
	} {
		if err := errors.Join(c.call(), c.call()); err != nil { // prepares the statements
			t.Fatal(err)
		}
		redis, postgres := ofRedis.n.Load(), trips.Load()
		if err := c.call(); err != nil {
			t.Error(err)
		}
		redis, postgres = ofRedis.n.Load()-redis, trips.Load()-postgres
		if redis != c.redis || postgres != c.postgres {
			t.Errorf("%s: %d and %d round trips, want %d and %d", name, redis, postgres, c.redis, c.postgres)
		}
	}
}

// fenceOf returns the committed token of a resource's fence, 0 if the resource has no fence.
func (b *bundle) fenceOf(t *testing.T, resource string) (tok fencepost.Token) {
	t.Helper()
	err := b.pool.QueryRow(t.Context(), `SELECT coalesce(max(token), 0) FROM fencepost.fence WHERE resource = $1`,
		b.opts.Namespace+":"+resource).Scan((*int64)(&tok))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// The claim is committed with the writes, or rolled back with them, however the function ends.
func TestTheClaimOfDoSharesTheFateOfItsWrites(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	failed := errors.New("the work failed")
	for name, c := range map[string]struct {
		fn   fencepost.TxFunc
		want error
	}{
		"writes":       {setValue("x"), nil},
		"writes never": {func(context.Context, pgx.Tx) error { return nil }, nil},
		"error":        {func(context.Context, pgx.Tx) error { return failed }, failed},
		"panic":        {func(context.Context, pgx.Tx) error { panic(failed) }, failed},
	} {
		var tok fencepost.Token
		err := recovered(func() error {
			return b.store.Do(t.Context(), name, func(ctx context.Context, tx pgx.Tx) error {
				l, _ := fencepost.FromContext(ctx)
				if tok = l.Token(); tok != 1 || b.fenceOf(t, name) != 0 {
					t.Errorf("%s: token %d, and others see the fence at %d", name, tok, b.fenceOf(t, name))
				}
				return c.fn(ctx, tx)
			})
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", name, err)
		}
		want := tok
		if c.want != nil {
			want = 0
		}
		if got := b.fenceOf(t, name); got != want {
			t.Errorf("%s: the fence is at %d, want %d", name, got, want)
		}
	}
}

// I3, I7: the claim waits for a guarded write under an older token, and what the function reads comes after it.
func TestInvariant7_DoReadsAfterItsClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	a := b.acquireBriefly(t, "invoice-1")
	inside, wake, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		tx, err := b.pool.Begin(t.Context())
		if err == nil {
			err = fence.Enter(t.Context(), tx, a.Claim())
		}
		if err == nil {
			err = addOne(t.Context(), tx)
		}
		close(inside)
		<-wake
		done <- errors.Join(err, tx.Commit(t.Context()))
	}()
	<-inside
	go func() {
		b.awaitWaiter(t)
		close(wake)
	}()
	if err := b.store.Do(shortly(t.Context(), t), "invoice-1", addOne); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := b.read(t, "1").Value; got != "2" {
		t.Errorf("the row counts %s", got)
	}
}

// The control: a transaction that reads before its claim loses the other's acknowledged write.
func TestInvariant7Control_AReadBeforeTheClaimLosesAnUpdate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claimFirst bool
		want       string
	}{"claim first": {true, "2"}, "read first": {false, "1"}} {
		b := setup(t, fencepost.Options{})
		a := b.acquireBriefly(t, "invoice-1")
		next := a.Claim()
		next.Token++
		next.Nonce[0]++
		tx, err := b.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		claim := func() {
			if _, err := tx.Exec(t.Context(), `SELECT fencepost.claim($1, $2, $3)`,
				next.Resource, int64(next.Token), next.Nonce.Hex()); err != nil {
				t.Error(err)
			}
		}
		if c.claimFirst {
			if err := writeGuardedBy(t.Context(), b, a.Claim(), addOne); err != nil {
				t.Error(err)
			}
			claim()
		}
		var n string
		row := tx.QueryRow(t.Context(), `SELECT (value::int + 1)::text FROM app.invoice WHERE id = '1'`)
		if err := row.Scan(&n); err != nil {
			t.Error(err)
		}
		if !c.claimFirst {
			if err := writeGuardedBy(t.Context(), b, a.Claim(), addOne); err != nil {
				t.Error(err)
			}
			claim()
		}
		if err := errors.Join(setValue(n)(t.Context(), tx), tx.Commit(t.Context())); err != nil {
			t.Error(err)
		}
		if got := b.read(t, "1").Value; got != c.want {
			t.Errorf("%s: the row counts %s, want %s", name, got, c.want)
		}
	}
}

// writeGuardedBy runs a function in a transaction that has entered a claim.
func writeGuardedBy(ctx context.Context, b *bundle, c fencepost.Claim, fn fencepost.TxFunc) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := fence.Enter(ctx, tx, c); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// awaitWaiter waits until a session of the test's database waits for a lock.
func (b *bundle) awaitWaiter(t *testing.T) {
	t.Helper()
	err := testenv.UntilQuery(shortly(t.Context(), t), b.pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	if err != nil {
		t.Errorf("nobody waits: %v", err)
	}
}

// I3: a write under an overtaken lease waits for the transaction of Do, and is refused once that has committed.
func TestInvariant3_AnOvertakenWriteWaitsForDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ fails, refused error }{
		"committed":   {nil, fencepost.ErrStale},
		"rolled back": {errors.New("the work failed"), nil}, // and the control: the claim was never made
	} {
		b := setup(t, fencepost.Options{})
		a := b.acquireBriefly(t, "invoice-1")
		late := make(chan error, 1)
		err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			go func() { late <- writeGuarded(t.Context(), b, a.Claim(), "late") }()
			b.awaitWaiter(t)
			return errors.Join(setValue("next")(ctx, tx), c.fails)
		})
		if !errors.Is(err, c.fails) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := <-late; !errors.Is(err, c.refused) {
			t.Errorf("%s: the late write got %v", name, err)
		}
		if got := b.read(t, "1").Value; (got == "next") != (c.refused != nil) {
			t.Errorf("%s: the row is %q", name, got)
		}
	}
}

// A serialization failure, in the function or at COMMIT, rolls the claim back. The next run claims the same token
// again. The acquire is reported once, and each claim is.
func TestARepeatedDoClaimsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `CREATE FUNCTION app.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.value = 'fails' THEN RAISE SQLSTATE '40001'; END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON app.invoice DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION app.fail()`)
	j := newJournal(t)
	b.opts.Events = j.events()
	calls := 0
	err := b.another(t).Do(span(t.Context()), "r", func(ctx context.Context, tx pgx.Tx) error {
		switch calls++; calls {
		case 1:
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$`)
			return err
		case 2:
			return setValue("fails")(ctx, tx)
		}
		return setValue("works")(ctx, tx)
	})
	if err != nil || b.read(t, "1").Value != "works" || b.fenceOf(t, "r") != 1 {
		t.Errorf("%v, %+v, the fence at %d", err, b.read(t, "1"), b.fenceOf(t, "r"))
	}
	j.want("claimed r 1", "acquired r 1", "retried [r] 1", "claimed r 1", "retried [r] 2", "claimed r 1", "released r 1")
}

// Between two runs of the function the claim is not in force. A call under the lease is still the caller's own then: if
// it were refused as stale, the lease would be over, and Do with it.
func TestACallBetweenTwoRunsOfDoDoesNotEndItsLease(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	other := t.Context() // it does not tell of the lease
	over, ended, calls := make(chan struct{}), make(chan error, 1), 0
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		if calls++; calls > 1 {
			return setValue("x")(ctx, tx)
		}
		l, _ := fencepost.FromContext(ctx)
		go func() {
			for {
				select {
				case <-over:
					ended <- nil
					return
				default:
				}
				err := b.table.Update(other, l, fencepost.Key{"1"}, fencepost.Set{"value": "y"})
				if !errors.Is(err, fencepost.ErrHeldByCaller) {
					ended <- err
					return
				}
			}
		}()
		_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		return err
	})
	close(over)
	if err != nil || calls != 2 {
		t.Errorf("Do = %v after %d calls", err, calls)
	}
	if err := <-ended; err != nil && !errors.Is(err, fencepost.ErrLost) {
		t.Errorf("the call beside it: %v", err)
	}
}

// A fence that is ahead refuses the claim: the transaction is rolled back, the lease gets a higher token, and the claim
// is made again. The function runs once.
func TestDoClaimsAboveAFenceThatIsAhead(t *testing.T) {
	t.Parallel()
	var c counts
	b := setup(t, fencepost.Options{Events: c.events()})
	if err := b.store.Do(t.Context(), "r", setValue("x")); err != nil {
		t.Fatal(err)
	}
	exec(t, b.pool, `UPDATE fencepost.fence SET token = 100`)
	calls := 0
	err := b.store.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		calls++
		l, _ := fencepost.FromContext(ctx)
		if l.Token() != 101 || l.Claim().Token != 101 {
			t.Errorf("token %d", l.Token())
		}
		return fence.Enter(ctx, tx, l.Claim())
	})
	if err != nil || calls != 1 || b.fenceOf(t, "r") != 101 {
		t.Errorf("%v after %d calls, the fence at %d", err, calls, b.fenceOf(t, "r"))
	}
	c.want(t, 0, 1)
}

// If lifting does not help, Do gives up after a few tries. Nothing was acquired, the function has not run, and no
// connection or lease is left behind.
func TestDoGivesUpOnAFenceThatStaysAhead(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `
		CREATE OR REPLACE FUNCTION fencepost.claim(resource text, token bigint, nonce uuid, label text DEFAULT '',
			OUT claimed boolean, OUT current bigint, OUT refusal jsonb)
		LANGUAGE sql AS $$ SELECT false, token + 5, NULL::jsonb $$;
		CREATE OR REPLACE FUNCTION fencepost.claim_marked(resource text, token bigint, nonce uuid, label text,
			max_idle integer, OUT claimed boolean, OUT current bigint, OUT xid text, OUT incarnation uuid,
			OUT refusal jsonb)
		LANGUAGE sql AS $$ SELECT false, token + 5, NULL::text, NULL::uuid, NULL::jsonb $$`) // another is always faster
	var refused []error
	b.opts.Events.Stale = func(context.Context, *fencepost.StaleError) { t.Error("reported as a refused write") }
	b.opts.Events.Acquired = func(context.Context, string, fencepost.Token, time.Duration) { t.Error("acquired") }
	b.opts.Events.Refused = func(_ context.Context, _ string, _ time.Duration, err error) {
		refused = append(refused, err)
	}
	err := b.another(t).Do(t.Context(), "r", func(context.Context, pgx.Tx) error { t.Error("it ran"); return nil })
	if wantErr(t, err, fencepost.ErrTokenRegressed); len(refused) != 1 || !errors.Is(refused[0], err) {
		t.Errorf("reported %v", refused)
	}
	if n := b.pool.Stat().AcquiredConns(); n != 0 || !b.free(t, "r") {
		t.Errorf("%d connections were not given back, or the lease was not", n)
	}
}

// I9: if the claim of Do waits for an open guarded transaction until ctx ends, the error says so.
func TestInvariant9_DoSaysThatTheFenceIsBusy(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	err := whileGuarded(t, b.store, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return b.another(t).Do(ctx, "r", setValue("x"))
	})
	var busy *fencepost.FenceBusyError
	wantErr(t, err, fencepost.ErrHeld, context.DeadlineExceeded)
	if !errors.As(err, &busy) || errors.Is(err, fencepost.ErrUnavailable) || !b.free(t, "r") {
		t.Errorf("got %v", err)
	}
}

// I9: a COMMIT whose reply was lost is settled, and the claim has the same outcome.
func TestInvariant9_ALostReplyToTheCommitOfDoIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	dropped := proxy.DropNextReply(faults.Commit())
	if err := proxied.Do(t.Context(), "r", setValue("A")); err != nil || b.read(t, "1").Value != "A" {
		t.Errorf("%v, %+v", err, b.read(t, "1"))
	}
	<-dropped
	committed := b.fenceOf(t, "r")
	dropped = proxy.DropNextRequest(faults.Commit())
	notCommitted(t, proxied.Do(t.Context(), "r", setValue("B")))
	<-dropped
	if got := b.fenceOf(t, "r"); committed != 1 || got != committed || b.read(t, "1").Value != "A" {
		t.Errorf("the fence went from %d to %d, %+v", committed, got, b.read(t, "1"))
	}
}

// If a connection dies during the claim, Do uses another one, and nothing else changes.
func TestDoOutlivesADeadConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	proxied, proxy := behindProxy(t, b)
	if err := proxied.Do(t.Context(), "r", setValue("A")); err != nil {
		t.Fatal(err)
	}
	proxy.CutOnce()
	if err := proxied.Do(t.Context(), "r", setValue("B")); err != nil || b.read(t, "1").Value != "B" {
		t.Errorf("%v, %+v", err, b.read(t, "1"))
	}
}

// If a lease is lost while the function runs, neither the writes nor the claim are committed.
func TestALeaseLostInsideDoLeavesNoClaim(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{TTL: time.Second})
	err := b.store.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		if err := errors.Join(setValue("lost")(ctx, tx), b.rdb.Del(ctx, b.leaseKey("r")).Err()); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if wantErr(t, err, fencepost.ErrLost); b.fenceOf(t, "r") != 0 || b.read(t, "1").Value == "lost" {
		t.Errorf("the fence is at %d, %+v", b.fenceOf(t, "r"), b.read(t, "1"))
	}
}

// A call under the lease in another transaction would wait for the transaction that makes its claim. It is refused at
// once, even if its context does not carry the lease. After Do the lease is over.
func TestCase38_ACallOutsideTheTransactionOfDoIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	var kept *fencepost.Lease
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, _ pgx.Tx) error {
		kept, _ = fencepost.FromContext(ctx)
		for name, write := range waysToWrite(shortly(t.Context(), t), b.store, b.table) {
			if name != "Join" { // which knows the lease from its context
				wantHeldByCaller(t, name, write(kept))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	wantErr(t, b.store.Tx(t.Context(), setValue("late"), kept), fencepost.ErrLost)
}

// The control: the same write by hand waits until the transaction of Do ends.
func TestCase38Control_AWriteByHandWaitsForDo(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	if err := b.store.Do(t.Context(), "invoice-1", setValue("makes the fence, so that others see it")); err != nil {
		t.Fatal(err)
	}
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, _ pgx.Tx) error {
		l, _ := fencepost.FromContext(ctx)
		tx, err := b.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '200ms'`); err != nil {
			return err
		}
		return fence.Enter(ctx, tx, l.Claim())
	})
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != "55P03" {
		t.Errorf("got %v, want lock_not_available", err)
	}
}
