package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// limits are the settings that end a statement or a transaction. The last exists from PostgreSQL 17 on.
var limits = []string{"statement_timeout", "lock_timeout", "transaction_timeout"}

// limited gives later sessions of a database limits of 2 s.
func limited(t *testing.T, address string) {
	t.Helper()
	for _, setting := range limits {
		exec(t, testenv.PoolOn(t, address), `DO $$ BEGIN
			IF current_setting('`+setting+`', true) IS NOT NULL THEN
				EXECUTE format('ALTER DATABASE %I SET `+setting+` = ''2s''', current_database());
			END IF; END $$`)
	}
}

// wantLimits checks that the transaction has the limits of its database.
func wantLimits(t *testing.T) fencepost.TxFunc {
	t.Helper()
	return func(ctx context.Context, tx pgx.Tx) error {
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
	}
}

// C41: the claim of Do waits as long as its caller does. The function then runs under the limits of its database again,
// behind a pooler too, and after a run that was rolled back. The next user of the connection sees none of the settings.
func TestCase41_TheClaimOfDoWaitsForItsOwnBound(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"direct": pgx.QueryExecModeCacheStatement, "pooler": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testenv.Database(t)
			limited(t, address)
			config := testenv.PoolOn(t, address).Config().ConnConfig
			pooler := testenv.PgBouncer(t, address, &services.PgBouncerOptions{PoolSize: 4})
			b, pool := pooledBy(t, pooler, address, mode)
			if name == "direct" {
				pool = testenv.PoolOn(t, config.ConnString())
			}
			store, err := fencepost.New(pool, b.rdb, &b.opts)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			err = whileEntered(t, b, func() {
				calls := 0
				go func() {
					done <- store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
						err := wantLimits(t)(ctx, tx)
						if calls++; err == nil && calls == 1 {
							_, err = tx.Exec(ctx, `DO $b$ BEGIN RAISE SQLSTATE '40001'; END $b$`)
						}
						return err
					})
				}()
				b.awaitWaiter(t)
			})
			if err := errors.Join(err, <-done); err != nil {
				t.Error(err)
			}
			err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return wantLimits(t)(t.Context(), tx) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// whileEntered runs try while a guarded transaction of invoice-1 under an old token is open. That transaction then
// stays open for longer than the limits.
func whileEntered(t *testing.T, b *bundle, try func()) error {
	t.Helper()
	a := b.acquireBriefly(t, "invoice-1")
	return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		for _, setting := range limits {
			_, err := tx.Exec(t.Context(), `SELECT set_config(name, '0', true) FROM pg_settings WHERE name = $1`, setting)
			if err != nil {
				return err
			}
		}
		if err := fence.Enter(t.Context(), tx, a.Claim()); err != nil {
			return err
		}
		try()
		_, err := tx.Exec(t.Context(), `SELECT pg_sleep(3)`)
		return err
	})
}

// If something else has locked the fence's row without the gate, the claim of Do waits, within its own bounds.
func TestTheClaimOfDoWaitsForALockBesideTheGate(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	do := func() error { return b.store.Do(shortly(t.Context(), t), "r", setValue("x")) }
	if err := do(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM fencepost.fence FOR UPDATE`); err != nil {
			return err
		}
		go func() { done <- do() }()
		b.awaitWaiter(t)
		_, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.3)`) // longer than the claim that does not wait
		return err
	})
	if err := errors.Join(err, <-done); err != nil || b.fenceOf(t, "r") != 2 {
		t.Errorf("%v, the fence at %d", err, b.fenceOf(t, "r"))
	}
}
