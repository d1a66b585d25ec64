package fencepost_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// tenant makes a role that has the table and no right on fencepost.
func (b *bundle) tenant(t *testing.T) string {
	t.Helper()
	role := "tenant_" + strings.TrimPrefix(b.pool.Config().ConnConfig.Database, "fencepost_test_")
	exec(t, b.pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		_, err := b.pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		if err != nil {
			t.Error(err)
		}
	})
	exec(t, b.pool, `GRANT USAGE ON SCHEMA app TO `+role)
	exec(t, b.pool, `GRANT ALL ON app.invoice TO `+role)
	return role
}

// evilPath is a schema whose functions have the names that a COMMIT's check calls, and answer with lies.
const evilPath = `
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
	CREATE FUNCTION evil.yes(xid8, xid8) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
	CREATE OPERATOR evil.= (LEFTARG = xid8, RIGHTARG = xid8, FUNCTION = evil.yes);
	CREATE FUNCTION evil.pg_current_xact_id_if_assigned() RETURNS xid8 LANGUAGE sql AS 'SELECT ''1''::xid8';
	GRANT USAGE ON SCHEMA evil TO PUBLIC`

// sessionChanges are changes that a function may make to its session, and their outcomes.
func sessionChanges(role string) map[string]bool {
	return map[string]bool{
		`SET LOCAL ROLE ` + role:                           true,
		`SET LOCAL SESSION AUTHORIZATION ` + role:          true,
		`SET LOCAL ROLE ` + role + `; SET LOCAL ROLE NONE`: true,
		`RESET ALL`: true,
		`SET LOCAL search_path = evil, pg_temp, pg_catalog`: true,
		`SET LOCAL client_encoding = 'LATIN1'`:              true,
		`DISCARD PLANS`:                                     true,
		`DISCARD TEMP`:                                      true,
		`DISCARD ALL`:                                       false, // PostgreSQL refuses it inside a transaction
		`SET LOCAL ROLE ` + role + `; SET LOCAL search_path = evil`:   true,
		`SET LOCAL lock_timeout = '1s'; SET LOCAL ROLE ` + role + `;`: true,
	}
}

// The COMMIT needs no right of the role that the function has set, and uses nothing of its search_path.
func TestCase44_WhateverRoleTheFunctionTakesItCommits(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, evilPath)
	for sql, commits := range sessionChanges(b.tenant(t)) {
		err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE app.invoice SET value = $1::text WHERE id = '1'`, sql)
			return err
		})
		if commits != (err == nil) || commits != (b.read(t, "1").Value == sql) {
			t.Errorf("%s: %v, %+v", sql, err, b.read(t, "1"))
		}
	}
}

// Nothing commits unguarded: if the function ends the transaction in SQL, its later writes are not committed, under any
// role and any path.
func TestCase44_WhateverRoleTheFunctionTakesNothingIsUnguarded(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, evilPath)
	for sql, commits := range sessionChanges(b.tenant(t)) {
		if !commits {
			continue
		}
		err := b.store.Do(t.Context(), "invoice-1", func(ctx context.Context, tx pgx.Tx) error {
			for _, sql := range []string{`COMMIT`, `BEGIN`, sql, `UPDATE app.invoice SET value = 'unguarded' WHERE id = '1'`} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		})
		wantErr(t, err, fencepost.ErrOutcomeUnknown)
		if got := b.read(t, "1"); got.Value != "0" {
			t.Errorf("%s: %+v", sql, got)
		}
	}
}

// If a call lacks a right, the error says that the role in force counts. Nothing is committed.
func TestCase44_WhatNeedsARightSaysWhose(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	role := b.tenant(t)
	l := b.acquire(t, "invoice-1", nil)
	_, err := fencepost.Once(t.Context(), l, "key", "request", func(ctx context.Context, tx pgx.Tx) (int, error) {
		_, err := tx.Exec(ctx, `SET LOCAL ROLE `+role+`; UPDATE app.invoice SET value = 'x' WHERE id = '1'`)
		return 1, err
	})
	if !errors.Is(err, fencepost.ErrUnavailable) || !strings.Contains(err.Error(), "after SET ROLE too") ||
		b.read(t, "1").Value != "0" {
		t.Errorf("%v, %+v", err, b.read(t, "1"))
	}
}

// If a deferred trigger raises an error at COMMIT, the call returns that error, even if its SQLSTATE is the one that
// the check before COMMIT uses.
func TestCase44_AnErrorAtCommitIsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, fencepost.Options{})
	exec(t, b.pool, `CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION USING ERRCODE = '2201W', MESSAGE = 'no'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON app.invoice DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION app.refuse()`)
	err := b.store.Do(t.Context(), "invoice-1", setValue("x"))
	if err == nil || errors.Is(err, fencepost.ErrOutcomeUnknown) || b.read(t, "1").Value != "0" {
		t.Errorf("%v, %+v", err, b.read(t, "1"))
	}
}
