package fence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// Commit commits a guarded transaction, and returns an error if PostgreSQL rolls it back because a statement failed.
func TestCommitTellsWhatBecameOfAGuardedTransaction(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 7))
	for _, last := range []string{`UPDATE app.item SET value = 'new' WHERE id = 1`, `SELECT 1/0`} {
		tx, err := pool.Begin(t.Context())
		if err == nil {
			err = fence.Enter(t.Context(), tx, c)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, failed := tx.Exec(t.Context(), last)
		if err := fence.Commit(t.Context(), tx); (err == nil) != (failed == nil) ||
			failed != nil && !errors.Is(err, pgx.ErrTxCommitRollback) {
			t.Errorf("%s: %v, and COMMIT gives %v", last, failed, err)
		}
	}
	if n := fencetest.Count(t, pool, `value = 'new'`); n != 1 {
		t.Errorf("%d rows were written", n)
	}
}

// A table is checked and quoted before anything is sent.
func TestATableIsNamedByItsParts(t *testing.T) {
	t.Parallel()
	table := fence.Table{Schema: "app", Name: `odd"name`, Key: []string{"id"}}
	if err := table.Check(); err != nil || table.String() != `"app"."odd""name"` {
		t.Errorf("%s, %v", table, err)
	}
	if got := table.TokenColumn(); got != fence.DefaultTokenColumn {
		t.Errorf("the token column is %q", got)
	}
	table.Schema = ""
	fencetest.WantErr(t, table.Check(), fence.ErrInvalid)
}
