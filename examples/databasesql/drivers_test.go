package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/token"
)

// The outcomes of the database/sql forms are the same with every driver.

var items = fence.Table{Schema: "app", Name: "item", Key: []string{"id"}}

const createItems = `
	CREATE SCHEMA app;
	CREATE TABLE app.item (id uuid PRIMARY KEY, value text NOT NULL DEFAULT '', n bigint NOT NULL DEFAULT 0,
		last_fencing_token bigint NOT NULL DEFAULT 0);
	INSERT INTO app.item (id) VALUES ('` + itemID + `'), ('` + lockedID + `');
	CREATE FUNCTION app.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
	CREATE TRIGGER swallow BEFORE UPDATE ON app.item FOR EACH ROW
		WHEN (OLD.id = '` + lockedID + `') EXECUTE FUNCTION app.swallow();`

const (
	itemID   = "0190a5a0-0000-7000-8000-000000000001"
	lockedID = "0190a5a0-0000-7000-8000-000000000002"
	noID     = "0190a5a0-0000-7000-8000-000000000003"
)

var drivers = []string{"postgres", "pgx"}

// itemsDatabase returns the address of a database of the test's own.
func itemsDatabase(t *testing.T) string {
	t.Helper()
	url := testenv.Database(t)
	if _, err := openDB(t, "pgx", url).ExecContext(t.Context(), createItems); err != nil {
		t.Fatal(err)
	}
	return url
}

func update(ctx context.Context, db fence.SQLDB, tok token.Token, id, value any) error {
	return fence.UpdateSQL(ctx, db, items, tok, fence.Key{id}, fence.Set{"value": value})
}

func item(t *testing.T, url string) (value string, n int64, tok token.Token) {
	t.Helper()
	err := openDB(
		t,
		"pgx",
		url,
	).QueryRowContext(t.Context(), `SELECT value, n, last_fencing_token FROM app.item WHERE id = $1`, itemID).
		Scan(&value, &n, &tok)
	if err != nil {
		t.Fatal(err)
	}
	return value, n, tok
}

func wantErr(t *testing.T, err, want error, not ...error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want an error that matches %v", err, want)
	}
	for _, n := range not {
		if errors.Is(err, n) {
			t.Errorf("got %v, which matches %v", err, n)
		}
	}
}

func wantStale(t *testing.T, err error, tok, current token.Token, row bool) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) || stale.Token != tok || stale.Current != current ||
		stale.Row != row {
		t.Errorf("got %v, want token %d refused at %d", err, tok, current)
	}
}

func TestTheOutcomesOfABareWrite(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			url := itemsDatabase(t)
			db := openDB(t, driver, url)
			ctx := t.Context()
			err := update(ctx, db, 5, itemID, nil) // NOT NULL
			var state interface{ SQLState() string }
			if !errors.As(err, &state) || state.SQLState() != "23502" {
				t.Errorf("got %v", err)
			}
			if err := update(ctx, db, token.Max, itemID, "B"); err != nil {
				t.Fatal(err)
			}
			wantStale(t, update(ctx, db, 5, itemID, "A"), 5, token.Max, true)
			wantErr(t, update(ctx, db, token.Max, itemID, "again"), fence.ErrTokenSpent, fence.ErrStale)
			wantErr(t, update(ctx, db, 5, noID, "x"), fence.ErrNotFound)
			wantErr(t, update(ctx, db, 5, lockedID, "x"), fence.ErrRefused)
			wantErr(t, update(ctx, db, 0, itemID, "x"), fence.ErrInvalid)
			if value, _, tok := item(t, url); value != "B" || tok != token.Max {
				t.Errorf("the row holds %q under %d", value, tok)
			}
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			wantErr(t, update(cancelled, db, 5, itemID, "x"), fence.ErrUnavailable, fence.ErrOutcomeUnknown)
		})
	}
}

func TestTheOutcomesOfClaimAndGuard(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			url := itemsDatabase(t)
			db := openDB(t, driver, url)
			ctx := t.Context()
			a := fence.Claim{Resource: `it's "r"`, Token: 5, Nonce: token.NewNonce()}
			for range 2 { // the second recognises itself
				if err := fence.RaiseSQL(ctx, db, a, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := guarded(ctx, db, a); err != nil {
				t.Error(err)
			}
			b := fence.Claim{Resource: a.Resource, Token: 6, Nonce: token.NewNonce()}
			if err := fence.RaiseSQL(ctx, db, b, nil); err != nil {
				t.Fatal(err)
			}
			wantStale(t, guarded(ctx, db, a), 5, 6, false)
			wantStale(t, fence.RaiseSQL(ctx, db, a, nil), 5, 6, false)
			b.Token = token.Max
			wantErr(t, fence.RaiseSQL(ctx, db, b, nil), fence.ErrJump)
			if _, n, _ := item(t, url); n != 1 {
				t.Errorf("%d writes came through", n)
			}
		})
	}
}

// guarded increments a value in a transaction under a claim.
func guarded(ctx context.Context, db *sql.DB, c fence.Claim) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fence.EnterSQL(ctx, tx, c); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE app.item SET n = n + 1 WHERE id = $1`, itemID); err != nil {
		return err
	}
	return fence.CommitError(ctx, tx.Commit())
}

// The code ignores the error of a guard: the commit reports that nothing was committed.
func TestAnOverlookedRefusalCommitsNothing(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			url := itemsDatabase(t)
			db := openDB(t, driver, url)
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			wantStale(
				t,
				fence.EnterSQL(t.Context(), tx, fence.Claim{Resource: "r", Token: 1, Nonce: token.NewNonce()}),
				1,
				0,
				false,
			)
			_, _ = tx.ExecContext(t.Context(), `UPDATE app.item SET n = n + 1 WHERE id = $1`, itemID)
			err = fence.CommitError(t.Context(), tx.Commit())
			if err == nil || errors.Is(err, fence.ErrOutcomeUnknown) {
				t.Errorf("commit gave %v", err)
			}
			if _, n, _ := item(t, url); n != 0 {
				t.Error("the write came through")
			}
		})
	}
}

func proxied(t *testing.T, driver, url string) (*faults.Proxy, *sql.DB) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := faults.NewProxy(t, fmt.Sprintf("%s:%d", config.Host, config.Port))
	return proxy, openDB(t, driver, proxy.URL(t, url))
}

// marker tells the proxy which message carries the write out. It is in an argument, which is sent after the statement
// has been prepared.
const marker = "a value of its own"

// The reply to a write is lost, before or after it was carried out.
func TestALostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	for _, carriedOut := range []bool{true, false} {
		t.Run(fmt.Sprintf("carried out %v", carriedOut), func(t *testing.T) {
			t.Parallel()
			for _, driver := range drivers {
				t.Run(driver, func(t *testing.T) {
					t.Parallel()
					url := itemsDatabase(t)
					proxy, db := proxied(t, driver, url)
					drop, want := proxy.DropNextRequest, token.Token(0)
					if carriedOut {
						drop, want = proxy.DropNextReply, 5
					}
					dropped := drop(faults.Containing(marker))
					wantErr(
						t,
						update(t.Context(), db, 5, itemID, marker),
						fence.ErrOutcomeUnknown,
						fence.ErrTokenSpent,
						fence.ErrStale,
					)
					<-dropped
					if _, _, tok := item(t, url); tok != want {
						t.Errorf("the row carries %d, want %d", tok, want)
					}
				})
			}
		})
	}
}

// The control: a plain UPDATE on a pool of lib/pq loses its reply, and database/sql sends it again. It counts twice,
// and no error says so. This is why UpdateSQL stays on one connection.
func TestControl_APlainPoolRepeatsAWriteWhoseReplyWasLost(t *testing.T) {
	t.Parallel()
	url := itemsDatabase(t)
	proxy, db := proxied(t, "postgres", url)
	dropped := proxy.DropNextReply(faults.Containing(marker))
	_, err := db.ExecContext(t.Context(), `UPDATE app.item SET n = n + 1, value = $1 WHERE id = $2`, marker, itemID)
	<-dropped
	if _, n, _ := item(t, url); n != 2 || err != nil {
		t.Errorf("the control counted %d, %v", n, err)
	}
}

func TestALostReplyToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			url := itemsDatabase(t)
			proxy, db := proxied(t, driver, url)
			c := fence.Claim{Resource: "r", Token: 1, Nonce: token.NewNonce()}
			if err := fence.RaiseSQL(t.Context(), db, c, nil); err != nil {
				t.Fatal(err)
			}
			commit := map[string]string{"postgres": "COMMIT", "pgx": "commit"}[driver]
			dropped := proxy.DropNextReply(faults.Containing(commit))
			wantErr(t, guarded(t.Context(), db, c), fence.ErrOutcomeUnknown)
			<-dropped
			if _, n, _ := item(t, url); n != 1 {
				t.Errorf("it counted %d", n)
			}
		})
	}
}

// The connection ends in the middle of a transaction: nothing can have been committed, and the error says so.
func TestAConnectionThatEndsBeforeCommitIsNoOutcome(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			url := itemsDatabase(t)
			db := openDB(t, driver, url)
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			if err := tx.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil {
				t.Fatal(err)
			}
			err = fence.EnterSQL(t.Context(), tx, fence.Claim{Resource: "r", Token: 1, Nonce: token.NewNonce()})
			wantErr(t, err, fence.ErrUnavailable, fence.ErrOutcomeUnknown, fence.ErrStale)
			_ = tx.Rollback()
		})
	}
}
