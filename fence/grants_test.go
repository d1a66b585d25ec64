package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgledger"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// If a role lacks a grant on fencepost, the error says so, whichever part is missing and however statements are sent. A
// missing right on the table is reported as the table's. PostgreSQL uses one SQLSTATE for both.
func TestARoleThatMayNotEnterIsToldSo(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	fencetest.Exec(t, l.admin, `SELECT fencepost.unprotect('app.item')`)
	c := fencetest.MustRaise(t, l.admin, fencetest.ClaimOf("r", 5))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		for name, missing := range map[string]struct{ take, give string }{
			"schema": {
				`REVOKE USAGE ON SCHEMA fencepost FROM ` + l.appRole, `GRANT USAGE ON SCHEMA fencepost TO ` + l.appRole,
			},
			"function": {
				`REVOKE EXECUTE ON FUNCTION fencepost.enter, fencepost.guard FROM ` + l.appRole,
				`GRANT EXECUTE ON FUNCTION fencepost.enter, fencepost.guard TO ` + l.appRole,
			},
		} {
			fencetest.Exec(t, l.admin, missing.take)
			for call, err := range guardedCalls(t, inMode(t, l.app, mode), c) {
				wantGrant(t, mode.String()+", "+name+", "+call, err)
			}
			fencetest.Exec(t, l.admin, missing.give)
		}
		fencetest.Exec(t, l.admin, `REVOKE ALL ON app.item FROM `+l.appRole)
		for call, err := range guardedCalls(t, inMode(t, l.app, mode), c) {
			if call != "guard" && call != "batch" {
				fencetest.WantOnly(t, mode.String()+", table, "+call, err, fence.ErrRefused)
			}
			if err != nil && strings.Contains(err.Error(), "grant_application") {
				t.Errorf("%s: %v", call, err)
			}
		}
		fencetest.Exec(t, l.admin, `GRANT ALL ON app.item TO `+l.appRole+`; REVOKE USAGE ON SCHEMA app FROM `+l.appRole)
		for _, call := range []string{"update", "modify"} {
			fencetest.WantOnly(
				t,
				mode.String()+", table's schema, "+call,
				guardedCalls(t, inMode(t, l.app, mode), c)[call],
				fence.ErrRefused,
			)
		}
		fencetest.Exec(t, l.admin, `GRANT USAGE ON SCHEMA app TO `+l.appRole)
	}
}

// Claims, the ledger and the server's incarnation need fencepost's rights alone.
func TestARoleWithoutFencepostIsToldSo(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	fencetest.Exec(t, l.admin, `SELECT fencepost.revoke_all($1::text::regrole)`, l.appRole)
	ctx := t.Context()
	wantGrant(t, "claim", fencetest.Raise(ctx, l.app, fencetest.ClaimOf("r", 9)))
	wantGrant(
		t,
		"claim over database/sql",
		fence.RaiseSQL(ctx, openSQL(t, l.app.Config().ConnString()), fencetest.ClaimOf("r", 9), nil),
	)
	_, _, err := pgledger.Look(ctx, l.app, pgledger.Entry{Namespace: "test", Key: "k", Resource: "r"})
	wantGrant(t, "ledger", err)
	wantGrant(
		t,
		"incarnation",
		fencetest.OnConn(ctx, l.app, func(conn *pgx.Conn) error { return pgcommit.BeginIncarnation(ctx, conn) }),
	)
	wantGrant(t, "purge", fencetest.OnConn(ctx, l.app, func(conn *pgx.Conn) error {
		_, err := pgledger.Purge(ctx, conn, "test", pgledger.Window)
		return err
	}))
}

func wantGrant(t *testing.T, what string, err error) {
	t.Helper()
	fencetest.WantOnly(t, what, err, fence.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "grant_application") || sqlState(err) != "42501" {
		t.Errorf("%s: got error %v, want one that says what to grant", what, err)
	}
}

// guardedCalls makes every kind of guarded call, on connections that have prepared nothing yet.
func guardedCalls(t *testing.T, pool *pgxpool.Pool, c fence.Claim) map[string]error {
	t.Helper()
	defer pool.Close()
	ctx := t.Context()
	return map[string]error{
		"guard":  guarded(ctx, pool, c, 1, "x"),
		"update": fencetest.UpdateClaimed(ctx, pool, c, 1, "x"),
		"insert": fencetest.InsertClaimed(ctx, pool, c, 10, "x"),
		"upsert": fencetest.UpsertClaimed(ctx, pool, c, 1, "x"),
		"delete": fencetest.DeleteClaimed(ctx, pool, c, 1),
		"modify": fencetest.ModifyClaimed(ctx, pool, c, 1, "x"),
		"batch": pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			batches, err := pgbatch.NewBatchWriter(fencetest.Rows, itemColumns())
			if err != nil {
				return err
			}
			batch, err := batches.Batch(fencetest.Changes("x", 1))
			return errors.Join(err, batch.Update(ctx, tx, c, nil))
		}),
	}
}

// itemColumns is the result of Inspect for app.item, for roles that may read it.
func itemColumns() []pgtable.Column {
	return []pgtable.Column{
		{Name: "id", BaseOID: 20, NotNull: true},
		{Name: "value", BaseOID: 25},
		{Name: "last_fencing_token", BaseOID: 20, NotNull: true},
	}
}

func inMode(t *testing.T, of *pgxpool.Pool, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config := of.Config()
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}
