package fencepost_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// Only the caller bounds the wait for a transaction-level lock. The function then runs under the limits of its database
// again.
func TestCase41_AnAdvisoryTxWaitsForItsOwnBound(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	holders, err := fencepost.NewAdvisoryTx(b.pool, txOptions(&b.opts))
	if err != nil {
		t.Fatal(err)
	}
	limits := []string{"statement_timeout", "lock_timeout", "transaction_timeout"} // the last from PostgreSQL 17 on
	for _, setting := range limits {
		exec(t, b.pool, `DO $$ BEGIN
			IF current_setting('`+setting+`', true) IS NOT NULL THEN
				EXECUTE format('ALTER DATABASE %I SET `+setting+` = ''2s''', current_database());
			END IF; END $$`)
	}
	store, err := fencepost.NewAdvisoryTx(testenv.PoolOn(t, b.pool.Config().ConnString()), txOptions(&b.opts))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	err = holders.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
		go func() {
			done <- store.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
				for _, setting := range limits {
					var now *string
					if err := tx.QueryRow(ctx, `SELECT current_setting($1, true)`, setting).Scan(&now); err != nil {
						return err
					}
					if now != nil && *now != "2s" {
						t.Errorf("%s is %s inside", setting, *now)
					}
				}
				return nil
			})
		}()
		err := testenv.UntilQuery(ctx, b.pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `SELECT pg_sleep(3)`) // longer than the limits
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The settings that keep the limits meanwhile may have been set by the session before. Such values count as unset.
func TestCase52_AnAdvisoryTxTrustsNoSettingLeftBehind(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	pool, _ := testenv.CountedPool(t, b.pool) // one connection
	store := advisoryTx(t, pool, &b.opts)
	for _, setting := range []string{"statement_timeout", "lock_timeout", "transaction_timeout"} {
		for _, left := range []string{"x", "1ms"} {
			exec(t, pool, `SELECT set_config('fencepost.`+setting+`', $1, false)`, left)
			err := store.Do(t.Context(), "r", func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `SELECT pg_sleep(0.05)`)
				return err
			})
			if err != nil {
				t.Errorf("%s = %s: %v", setting, left, err)
			}
		}
	}
}

// If a wait ends with its context, the event carries the error that the call returns: somebody has the lock, and the
// server is well.
func TestAnAdvisoryTxReportsWhatItReturns(t *testing.T) {
	t.Parallel()
	pool, opts := onLocks(t)
	letGo := holding(t, advisoryTx(t, pool, opts), "r")
	defer letGo()
	var told []error
	reporting := *opts
	reporting.Events.Transacted = func(_ context.Context, _ []string, _ time.Duration, err error) {
		told = append(told, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	returned := advisoryTx(t, pool, &reporting).Do(ctx, "r", setValue("never"))
	wantErr(t, returned, fencepost.ErrHeld, context.DeadlineExceeded)
	if len(told) != 1 || !errors.Is(told[0], fencepost.ErrHeld) || errors.Is(told[0], fencepost.ErrUnavailable) {
		t.Errorf("reported %v, returned %v", told, returned)
	}
}
