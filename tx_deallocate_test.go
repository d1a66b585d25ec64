package fencepost_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// deallocating is a function that deallocates all prepared statements of its connection, after it has written. It
// counts its calls.
func deallocating(value string, calls *int) fencepost.TxFunc {
	return func(ctx context.Context, tx pgx.Tx) error {
		*calls++
		_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = '`+value+`' WHERE id = '1'; DEALLOCATE ALL`)
		return err
	}
}

// valueUnprepared reads the row without a prepared statement, because pgx does not know that its own are gone.
func (b *bundle) valueUnprepared(t *testing.T) (value string) {
	t.Helper()
	err := b.pool.QueryRow(t.Context(), `SELECT value FROM app.invoice WHERE id = '1'`, pgx.QueryExecModeSimpleProtocol).
		Scan(&value)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A function that deallocates the statements that commit its transaction is run once more, and no later call is.
func TestAFunctionThatDeallocatesItsStatementsCommits(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	locker, err := fencepost.NewAdvisoryTx(b.pool, txOptions(&b.opts))
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(context.Context, string, fencepost.TxFunc) error{
		"Store.Do": b.store.Do, "AdvisoryTx.Do": locker.Do,
	} {
		for i, want := range []int{2, 1} {
			calls, value := 0, name+" "+string(rune('a'+i))
			err := do(t.Context(), "invoice-1", deallocating(value, &calls))
			if got := b.valueUnprepared(t); err != nil || calls != want || got != value {
				t.Errorf("%s, call %d: %v, the function ran %d times and not %d, value %q", name, i+1, err, calls, want, got)
			}
		}
	}
}

// The COMMIT that needs no prepared statement checks the transaction too.
func TestInvariant3_AlsoWithoutPreparedStatementsNothingIsWrittenAfterwards(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	var calls int
	if err := b.store.Do(t.Context(), "invoice-1", deallocating("before", &calls)); err != nil || calls != 2 {
		t.Fatal(err, calls)
	}
	err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `COMMIT AND CHAIN; UPDATE app.invoice SET value = 'unguarded' WHERE id = '1'`)
		return err
	})
	if got := b.valueUnprepared(t); !errors.Is(err, fencepost.ErrOutcomeUnknown) || got != "before" {
		t.Errorf("%v, value %q", err, got)
	}
}
