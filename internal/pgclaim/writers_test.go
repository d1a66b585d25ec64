package pgclaim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
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

// settings makes a claim in a session with settings of its own. It returns what the transaction has left of them when
// it commits.
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
		edit(t, pool, function, "set_config('synchronous_commit', 'on', true)", "concat('on')")
	}
	for function := range claiming {
		if left := settings(t, pool, function, "'off'"); left != "off 7s" {
			t.Errorf("control: %s leaves %q", function, left)
		}
	}
}

// The table has no CHECK constraints, so each function that writes it refuses what is no claim, of a new resource and
// of one that has a fence. The control: without that check a fence gets a token that no holder can have.
func TestNoFenceIsWrittenWithWhatIsNoClaim(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("there", 5))
	const nonce = `gen_random_uuid()`
	var calls []string
	for _, of := range [][3]string{
		{`'there'`, `0`, nonce},
		{`'there'`, `-9223372036854775808`, nonce},
		{`'there'`, `NULL`, nonce},
		{`'there'`, `6`, `NULL`},
		{`'new'`, `0`, nonce},
		{`'new'`, `-1`, nonce},
		{`'new'`, `1`, `NULL`},
		{`''`, `1`, nonce},
		{`NULL`, `1`, nonce},
	} {
		claim := strings.Join(of[:], ", ")
		calls = append(calls, `claim(`+claim+`)`, `claim_now(`+claim+`)`, `claim_marked(`+claim+`, '', 60000)`,
			fmt.Sprintf(`claim_all(ARRAY[%s], ARRAY[%s]::bigint[], ARRAY[%s]::uuid[])`, of[0], of[1], of[2]))
		if of[2] != nonce || of[0] == `''` || of[0] == `NULL` {
			calls = append(calls, `draw(`+of[0]+`, `+of[2]+`)`, `draw_marked(`+of[0]+`, `+of[2]+`, '', 1, 60000)`)
		}
	}
	fences := func() (all string) {
		err := pool.QueryRow(t.Context(), `SELECT string_agg(resource || ' ' || token, ', ') FROM fencepost.fence`).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, call := range calls {
		_, err := pool.Exec(t.Context(), `SELECT fencepost.`+call)
		if server, answered := pgerr.ServerError(err); !answered || server.Code != "ZF002" || fences() != "there 5" {
			t.Errorf("%s: %v; fences: %s", call, err, fences())
		}
	}
	edit(t, pool, "claim", "octet_length(resource) NOT BETWEEN 1 AND 1024", "false")
	if _, err := pool.Exec(t.Context(), `SELECT fencepost.claim_now('', 1, gen_random_uuid())`); err != nil {
		t.Error(err)
	}
	if fences() == "there 5" {
		t.Error("control: nothing was written")
	}
}

// edit changes the text of a function.
func edit(t *testing.T, pool *pgxpool.Pool, function, old, changed string) {
	t.Helper()
	var source string
	err := pool.QueryRow(t.Context(), `SELECT pg_get_functiondef(oid) FROM pg_proc
		WHERE pronamespace = 'fencepost'::regnamespace AND proname = $1`, function).Scan(&source)
	if err != nil {
		t.Fatal(err)
	}
	fencetest.Exec(t, pool, strings.ReplaceAll(source, old, changed))
}
