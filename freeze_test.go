package fencepost_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// An operator stops all writes before a cutover by default_transaction_read_only: no BEGIN of the library overrides
// it. Every write fails with ErrUnavailable while it is on, changes nothing, and succeeds once it is off. The
// control is the access mode that was written out before: it overrides the switch.
func TestAnOperatorsFreezeIsRespected(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]struct{ on, off string }{
		"database": {
			`ALTER DATABASE %d SET default_transaction_read_only = on`,
			`ALTER DATABASE %d RESET default_transaction_read_only`,
		},
		"role": {
			`ALTER ROLE CURRENT_USER IN DATABASE %d SET default_transaction_read_only = on`,
			`ALTER ROLE CURRENT_USER IN DATABASE %d RESET default_transaction_read_only`,
		},
		"session": {
			`SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY`,
			`SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, fencepost.Options{})
			pool, _ := testenv.CountedPool(t, b.pool) // one connection
			c := newCaller(t, b, pool)
			operate := func(sql string) {
				t.Helper()
				if name == "session" {
					exec(t, pool, sql)
					return
				}
				exec(t, b.pool, inDatabase(b.pool, sql))
				pool.Reset() // it counts for sessions that begin afterwards
			}
			operate(freeze.on)
			if tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadWrite}); err != nil {
				t.Fatal(err)
			} else if err := errors.Join(second(tx.Exec(t.Context(), `UPDATE app.invoice SET value = 'frozen'`)),
				tx.Commit(t.Context())); err != nil {
				t.Errorf("the control: %v", err)
			}
			for what, call := range c.writes(t.Context(), t) {
				var server *pgconn.PgError
				if err := call(); !errors.Is(err, fencepost.ErrUnavailable) || !errors.As(err, &server) || server.Code != "25006" {
					t.Errorf("%s during the freeze: %v", what, err)
				}
			}
			if n := value[int](t, b.pool, `SELECT count(*)::int FROM app.invoice WHERE value = 'frozen'`); n != 3 {
				t.Errorf("%d of 3 rows stand", n)
			}
			if row, err := c.table.Get(t.Context(), c.lease, fencepost.Key{"1"}); err != nil || row.Value != "frozen" {
				t.Errorf("read %+v, %v", row, err)
			}
			operate(freeze.off)
			for what, call := range c.writes(t.Context(), t) {
				if err := call(); err != nil {
					t.Errorf("%s afterwards: %v", what, err)
				}
			}
		})
	}
}
