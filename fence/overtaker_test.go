package fence_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/token"
)

// A stale claim is told who overtook it, and when, whichever way it takes. The nonce is not among what it is told.
func TestAStaleErrorNamesWhoOvertook(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	const label = `host "a", worker\7 (é)`
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	rival := fencetest.ClaimOf("r", 2)
	began := time.Now()
	err := fencetest.OnConn(t.Context(), pool, func(conn *pgx.Conn) error {
		return fence.Raise(t.Context(), conn, rival, &fence.RaiseOptions{Label: label})
	})
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for name, err := range map[string]error{
		"Raise":    fencetest.Raise(t.Context(), pool, fencetest.ClaimOf("r", 1)),
		"RaiseSQL": fence.RaiseSQL(t.Context(), db, fencetest.ClaimOf("r", 1), nil),
		"Enter":    guarded(t.Context(), pool, old, 1, "x"),
		"EnterSQL": fence.EnterSQL(t.Context(), tx, old),
	} {
		var stale *fence.StaleError
		if !errors.As(err, &stale) {
			t.Fatalf("%s: %v", name, err)
		}
		if stale.Label != label || stale.Floor || stale.ClaimedAt.Sub(began).Abs() > time.Minute {
			t.Errorf("%s: %+v", name, stale)
		}
		want := `claimed by "host \"a\", worker\\7 (é)" at ` + stale.ClaimedAt.Format(time.RFC3339)
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, rival.Nonce.Hex()[:8]) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A protected table says it too.
func TestAProtectedTableNamesWhoOvertook(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	old := fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 1))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	// What a trigger runs, once somebody has set the setting by hand and never entered.
	fencetest.Exec(t, tx, `SELECT set_config('fencepost.entered', fencepost.entered_text('r', 1, $1), true)`,
		old.Nonce.Hex())
	fencetest.MustRaise(t, pool, fencetest.ClaimOf("r", 2))
	fencetest.Exec(t, pool, `UPDATE fencepost.fence SET label = 'host-b', claimed_at = '2026-12-01 02:03:04+00'`)
	_, err = tx.Exec(t.Context(), `SELECT fencepost.check_write('r', NULL, 'app.item'::regclass, 'UPDATE', 'enforce')`)
	err = fence.GuardError(t.Context(), err)
	var stale *fence.StaleError
	at := time.Date(2026, 12, 1, 2, 3, 4, 0, time.UTC)
	if !errors.As(err, &stale) || stale.Label != "host-b" || !stale.ClaimedAt.Equal(at) {
		t.Errorf("%v: %+v", err, stale)
	}
}

// An error without the new parts reads as before.
func TestTheTextOfAStaleError(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 2, 3, 4, 0, time.UTC)
	for want, e := range map[string]fence.StaleError{
		`token 1, fence at 2`: {},
		`token 1, row at 2`:   {Row: true},
		`token 1, fence at 2, claimed by "b" at 2026-12-01T02:03:04Z`:        {Label: "b", ClaimedAt: at},
		`token 1, fence at 2, claimed at 2026-12-01T02:03:04Z`:               {ClaimedAt: at},
		`token 1, its fence is gone, and fences up to 2 have been collected`: {Floor: true},
	} {
		e.Resource, e.Token, e.Current = "r", token.Token(1), token.Token(2)
		if got := e.Error(); got != `fencepost: stale token: "r": `+want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
