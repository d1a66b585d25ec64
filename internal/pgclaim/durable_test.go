package pgclaim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// claiming are the functions that claim, each in a statement that claims for a resource.
var claiming = map[string]string{
	"claim":        `SELECT claimed FROM fencepost.claim($1, 2, gen_random_uuid())`,
	"claim_now":    `SELECT claimed FROM fencepost.claim_now($1, 2, gen_random_uuid())`,
	"claim_all":    `SELECT claimed[1] FROM fencepost.claim_all(ARRAY[$1], '{2}', ARRAY[gen_random_uuid()])`,
	"claim_marked": `SELECT claimed FROM fencepost.claim_marked($1, 2, gen_random_uuid(), '', 60000)`,
	"draw":         `SELECT fencepost.draw($1, gen_random_uuid()) IS NOT NULL`,
	"draw_marked":  `SELECT token IS NOT NULL FROM fencepost.draw_marked($1, gen_random_uuid(), '', 1, 60000)`,
}

// settings makes a claim in a session with settings of its own. It returns what the transaction has left of them when it
// commits.
func settings(t *testing.T, pool *pgxpool.Pool, function, synchronous string) (left string) {
	t.Helper()
	resource := fmt.Sprint(function, " under ", synchronous)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf(resource, 1))
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '7s'; SET LOCAL synchronous_commit = `+synchronous)
		if err != nil {
			return err
		}
		var claimed bool
		if err := tx.QueryRow(t.Context(), claiming[function], resource).Scan(&claimed); err != nil || !claimed {
			t.Fatalf("%s: %t, %v", function, claimed, err)
		}
		return tx.QueryRow(t.Context(),
			`SELECT current_setting('synchronous_commit') || ' ' || current_setting('lock_timeout')`).Scan(&left)
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// A crash cannot undo a claim, however little the session waits for the disk, and what the session waits for locks is
// its own affair again after the call. The control: without its line about the setting, a claim is lost with a crash.
func TestEveryClaimIsDurableAndLeavesTheSessionsOtherSettings(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	for function := range claiming {
		for synchronous, want := range map[string]string{
			"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply",
		} {
			if left := settings(t, pool, function, synchronous); left != want+" 7s" {
				t.Errorf("%s leaves %q of %s", function, left, synchronous)
			}
		}
	}
	for function := range claiming {
		var source string
		err := pool.QueryRow(t.Context(), `SELECT pg_get_functiondef(oid) FROM pg_proc
			WHERE pronamespace = 'fencepost'::regnamespace AND proname = $1`, function).Scan(&source)
		if err != nil {
			t.Fatal(err)
		}
		fencetest.Exec(t, pool, strings.ReplaceAll(source, "set_config('synchronous_commit', 'on', true)", "concat('on')"))
	}
	for function := range claiming {
		if left := settings(t, pool, function, "'off'"); left != "off 7s" {
			t.Errorf("control: %s leaves %q", function, left)
		}
	}
}
