package fence_test

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// I3: once the claim of 2 has committed, nothing guarded by 1 commits, even if the code ignores the error, because
// PostgreSQL has aborted its transaction.
func TestInvariant3_NothingIsWrittenUnderAnOvertakenClaim(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	a := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	if err := guarded(t.Context(), pool, a, 1, "A"); err != nil {
		t.Fatal(err)
	}
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 2))
	before := fencetest.Read(t, pool, 1)
	fencetest.WantStale(t, guarded(t.Context(), pool, a, 1, "A again"), 1, 2)

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fencetest.WantStale(t, fence.Enter(t.Context(), tx, a), 1, 2)
	_, _ = tx.Exec(t.Context(), `UPDATE app.item SET value = 'overlooked' WHERE id = 1`)
	if err := fence.CommitError(t.Context(), tx.Commit(t.Context())); err == nil {
		t.Error("a transaction whose guard had failed committed")
	}
	if after := fencetest.Read(t, pool, 1); after != before {
		t.Errorf("the row changed from %+v to %+v", before, after)
	}
	// The control: the same write without the guard.
	fencetest.Exec(t, pool, `UPDATE app.item SET value = 'A again' WHERE id = 1`)
	if fencetest.Read(t, pool, 1).Value != "A again" {
		t.Error("the control wrote nothing")
	}
}

// A claim that was never made, a claim of another resource and a claim with another nonce are refused too.
func TestOnlyTheClaimItselfPassesTheGuard(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 5))
	fencetest.WantStale(t, guarded(t.Context(), pool, fencetest.ClaimOf("nobody's", 5), 1, "x"), 5, 0)
	fencetest.WantStale(t, guarded(t.Context(), pool, fencetest.ClaimOf("r", 6), 1, "x"), 6, 5)
	fencetest.WantStale(t, guarded(t.Context(), pool, fencetest.ClaimOf("r", 5), 1, "x"), 5, 5) // a token read off a row
	if err := guarded(t.Context(), pool, c, 1, "mine"); err != nil {
		t.Error(err)
	}
}

// I3 as a race: guarded counters under one claim while the next one is claimed. The new holder finds every acknowledged
// step of the old claim. The control shows the loss without the guard.
func TestInvariant3_AGuardHoldsUntilItsTransactionEnds(t *testing.T) {
	t.Parallel()
	if lost := overtakeInFlight(t, true); lost {
		t.Error("an acknowledged write was lost under the guard")
	}
	if lost := overtakeInFlight(t, false); !lost {
		t.Error("the control lost nothing: the test shows nothing")
	}
}

// overtakeInFlight has A read, B claim and read, A write, B write, in that order if the guard allows it. It reports
// whether A's acknowledged write is missing in the end.
func overtakeInFlight(t *testing.T, guard bool) (lost bool) {
	t.Helper()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `UPDATE app.item SET value = '100' WHERE id = 1`)
	a := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if guard {
		if err := fence.Enter(t.Context(), tx, a); err != nil {
			t.Fatal(err)
		}
	}
	b := fencetest.ClaimOf("r", 2)
	claimed := make(chan error, 1)
	go func() { claimed <- fencetest.Raise(t.Context(), pool, b) }()
	var seen string
	if guard {
		untilWaiters(t, pool, 1) // B's claim waits for A
	} else {
		if err := <-claimed; err != nil {
			t.Fatal(err)
		}
		seen = fencetest.Read(t, pool, 1).Value
	}
	fencetest.Exec(t, tx, `UPDATE app.item SET value = (value::int - 50)::text WHERE id = 1`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err) // A's write is acknowledged
	}
	if guard {
		if err := <-claimed; err != nil {
			t.Fatal(err)
		}
		seen = fencetest.Read(t, pool, 1).Value
	}
	fencetest.Exec(t, pool, `UPDATE app.item SET value = ($1::int + 10)::text WHERE id = 1`, seen)
	return fencetest.Read(t, pool, 1).Value != "60"
}

// I5: overlapping short transactions under the old token do not starve a claim.
func TestInvariant5_GuardsDoNotStarveAClaim(t *testing.T) {
	t.Parallel()
	if err := claimAgainstAStream(t, fencetest.Setup(t), 10*time.Second); err != nil {
		t.Errorf("the claim did not get through: %v", err)
	}
}

// The control: without the gate in front of the fence, share locks are granted ahead of the waiting claim.
func TestInvariant5Control_WithoutTheGate(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for function, gate := range map[string]string{
		"claim(text, bigint, uuid, text)": `PERFORM pg_advisory_xact_lock\(.*\);`,
		"guard(text, bigint, uuid)":       `(?s)AND pg_catalog.pg_advisory_xact_lock_shared\(.*?IS NOT NULL`,
	} {
		var definition string
		err := pool.QueryRow(t.Context(), `SELECT pg_get_functiondef($1::regprocedure)`, "fencepost."+function).
			Scan(&definition)
		if err != nil {
			t.Fatal(err)
		}
		taken := regexp.MustCompile(gate).ReplaceAllString(definition, "")
		if taken == definition {
			t.Fatalf("%s has no gate to take away", function)
		}
		fencetest.Exec(t, pool, taken)
	}
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	claimed := make(chan error, 1)
	holder := beginGuarded(t, pool, old)
	go func() { claimed <- fencetest.Raise(ctx, pool, fencetest.ClaimOf("r", 2)) }()
	relays := 0
	for ctx.Err() == nil { // each transaction begins before the last one ends
		next := beginGuarded(t, pool, old)
		if err := holder.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		holder = next
		relays++
	}
	if err := <-claimed; err == nil || relays < 10 {
		t.Errorf("the claim got past %d transactions without the gate: %v", relays, err)
	}
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func beginGuarded(t *testing.T, pool *pgxpool.Pool, c fence.Claim) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fence.Enter(t.Context(), tx, c); err != nil {
		t.Fatal(err)
	}
	return tx
}

// claimAgainstAStream claims while eight writers keep guarding under an older token.
func claimAgainstAStream(t *testing.T, pool *pgxpool.Pool, patience time.Duration) error {
	t.Helper()
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	const enough = 50
	written := make(chan struct{}, 1000)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() { keepGuarding(t, pool, old, worker, written, stop) })
	}
	for range enough {
		<-written
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := fencetest.Raise(ctx, pool, fencetest.ClaimOf("r", 2))
	close(stop)
	wg.Wait()
	return err
}

// keepGuarding runs short transactions that overlap, until the claim has been overtaken.
func keepGuarding(
	t *testing.T, pool *pgxpool.Pool, c fence.Claim, worker int, written chan<- struct{}, stop <-chan struct{},
) {
	t.Helper()
	for {
		select {
		case <-stop:
			return
		default:
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if err := fence.Enter(t.Context(), tx, c); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.002 * $1::int)`, 1+worker%4)
			return err
		})
		if errors.Is(err, fence.ErrStale) {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		select {
		case written <- struct{}{}:
		default: // the counting has ended
		}
	}
}

// Everything that a guard sets ends with its transaction.
func TestAGuardLeavesNothingInTheSession(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c, d := fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("r", 1),
	), fencetest.MustRaise(
		t,
		pool,
		fencetest.ClaimOf("s", 7),
	)
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if err := errors.Join(fence.Enter(t.Context(), tx, c), fence.Enter(t.Context(), tx, d)); err != nil {
			return err
		}
		var both bool
		err := tx.QueryRow(t.Context(),
			`SELECT current_setting('fencepost.entered') ~ '^ "s":7:[0-9a-f]{64} "r":1:[0-9a-f]{64}$'`).
			Scan(&both)
		if err == nil && !both {
			t.Error("two guards in one transaction did not add up")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var left string
	var locks int
	err = conn.QueryRow(t.Context(), `
		SELECT coalesce(current_setting('fencepost.entered', true), ''),
		       (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())`).Scan(&left, &locks)
	if err != nil || left != "" || locks != 0 {
		t.Errorf("left behind: setting %q, %d advisory locks, %v", left, locks, err)
	}
}

func TestAConnectionThatEndsBeforeAGuardedWriteIsNoOutcome(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fencetest.Exec(t, pool, `SELECT pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
	err = fence.Enter(t.Context(), tx, c)
	fencetest.WantErr(t, err, fence.ErrUnavailable)
	if errors.Is(err, fence.ErrOutcomeUnknown) || errors.Is(err, fence.ErrStale) {
		t.Errorf("a guard writes nothing, and yet: %v", err)
	}
	_ = tx.Rollback(t.Context())
}

// Under a snapshot older than its claim, a guard asks for the transaction to be run again and does not report the claim
// as stale.
func TestAGuardUnderAnOlderSnapshotIsNotStale(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	fencetest.Exec(t, tx, `SELECT`) // takes the snapshot
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 2))
	err = fence.Enter(t.Context(), tx, c)
	if !fence.SafeToRetry(err) || errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
