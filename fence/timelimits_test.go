package fence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// limited returns a pool on the same database, whose sessions have time limits set for the database, as an operator
// sets them. Only settings that the server knows are used: transaction_timeout exists from PostgreSQL 17 on.
func limited(t *testing.T, pool *pgxpool.Pool, limit string) *pgxpool.Pool {
	t.Helper()
	for _, setting := range []string{
		"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
		"idle_session_timeout", "transaction_timeout",
	} {
		fencetest.Exec(t, pool, `DO $$ BEGIN
			IF current_setting('`+setting+`', true) IS NOT NULL THEN
				EXECUTE format('ALTER DATABASE %I SET `+setting+` = %L', current_database(), '`+limit+`');
			END IF; END $$`)
	}
	return testenv.PoolOn(t, pool.Config().ConnString())
}

// A claim waits as long as its own context allows, whatever limits the role or the database has.
func TestCase41_AClaimWaitsForItsOwnBound(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	holder := beginGuarded(t, pool, old)
	short := limited(t, pool, "2s") // and no busy machine takes that long for what comes before the wait
	claims := make(chan error, 3)
	go func() { claims <- fencetest.Raise(t.Context(), short, fencetest.ClaimOf("r", 2)) }()
	go func() {
		claims <- fence.RaiseSQL(t.Context(), openSQL(t, short.Config().ConnString()), fencetest.ClaimOf("r", 3), nil)
	}()
	go func() {
		conn, err := short.Acquire(t.Context())
		if err == nil {
			_, err = fence.Draw(t.Context(), conn.Conn(), "r", fencetest.ClaimOf("r", 1).Nonce, nil)
			conn.Release()
		}
		claims <- err
	}()
	untilWaiters(t, pool, 3)
	fencetest.Exec(t, holder, `SELECT pg_sleep(3)`) // longer than the limits
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-claims; err != nil && !errors.Is(err, fence.ErrStale) { // by one of the two others
			t.Error(err)
		}
	}
}

// If a limit ends a call that is no claim, the error names the setting, in whatever language the server speaks.
func TestCase41_WhatALimitEndsNamesTheSetting(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	var transactionTimeout bool
	if err := pool.QueryRow(t.Context(), `SELECT current_setting('transaction_timeout', true) IS NOT NULL`).
		Scan(&transactionTimeout); err != nil {
		t.Fatal(err)
	}
	for setting, known := range map[string]bool{
		"statement_timeout": true, "lock_timeout": true, "idle_in_transaction_session_timeout": true,
		"transaction_timeout": transactionTimeout,
	} {
		if !known {
			continue
		}
		blocker, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, blocker, `SELECT fencepost.claim($1, 2, gen_random_uuid())`, c.Resource)
		conn, err := pgx.Connect(t.Context(), pool.Config().ConnString())
		if err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, conn, `SET `+setting+` = '50ms'`)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(setting, "idle") {
			// The server's last message waits in the socket, as it would for a holder that was stopped.
			fencetest.Exec(t, blocker, `SELECT pg_sleep(0.5)`)
		}
		err = fence.Enter(t.Context(), tx, c) // waits for the claim
		fencetest.WantErr(t, err, fence.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "ended by the server's "+setting) {
			t.Errorf("%s: %v", setting, err)
		}
		_ = conn.Close(context.Background())
		if err := blocker.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
