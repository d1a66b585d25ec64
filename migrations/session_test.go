package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// withParameter returns the address with a parameter more: one of pgx's or a setting of the session.
func withParameter(t *testing.T, address, name, setting string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address does not parse") // its text may hold a password
	}
	q := u.Query()
	q.Set(name, setting)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // PostgreSQL's addresses know no plus
	return u.String()
}

// Case 11 (b): with a session lock migrators behind a pooler fail and strand locks. Case 22: the
// exec modes that work there work for the migrations.
func TestCase11_EightProcessesBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size int
		mode string
	}{
		"4 connections, exec":            {4, "exec"},
		"4 connections, simple protocol": {4, "simple_protocol"},
		"4 connections, cache describe":  {4, "cache_describe"},
		"1 connection, exec":             {1, "exec"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testenv.EmptyDatabase(t)
			db := open(t, address)
			mustExec(t, db, createAccounts)
			pooler := testenv.PgBouncer(t, address, &services.PgBouncerOptions{PoolSize: c.size})
			pooled := withParameter(t, pooler.URL(), "default_query_exec_mode", c.mode)

			wantSuccess(t, startAll(t, migrators, job{URL: pooled}))
			wantVersions(t, db, withOwn(t)...)
			wantSuccess(t, startAll(t, migrators, job{URL: pooled, Column: true}))
			wantVersions(t, db, withOwn(t, tokenVersion)...)
			wantTokenColumn(t, db)
			if n := value[int](t, db, advisoryLocks); n != 0 {
				t.Errorf("%d advisory locks stayed behind", n)
			}
			wantDefaults(t, open(t, pooled))
		})
	}
}

// More migrators than the pooler has server connections wait, one of them dies while it has the lock, and the rest end.
// How many server connections the waiting ones use is the pooler's affair: they poll, so two may serve them all.
func TestCase11_AKilledMigratorBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	db := open(t, address)
	mustExec(t, db, createAccounts)
	pooler := testenv.PgBouncer(t, address, &services.PgBouncerOptions{PoolSize: 4})
	pooled := withParameter(t, pooler.URL(), "default_query_exec_mode", "exec")
	victim := start(t, job{URL: pooled, Column: true, Hang: "-"})
	victim.awaitInside(t)
	others := startAll(t, migrators-1, job{URL: pooled, Column: true})
	for _, p := range others {
		p.awaitWaiting(t)
	}
	victim.kill(t)
	wantSuccess(t, others)
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, db)
	if n := value[int](t, db, advisoryLocks); n != 0 {
		t.Errorf("%d advisory locks stayed behind", n)
	}
}

// wantDefaults checks the settings of whatever server connection the pooler gives out.
func wantDefaults(t *testing.T, pooled *sql.DB) {
	t.Helper()
	const changed = `SELECT count(*) FROM pg_settings WHERE setting IS DISTINCT FROM reset_val AND name IN
		('lock_timeout', 'search_path', 'client_connection_check_interval', 'row_security', 'transaction_isolation')`
	for range 8 {
		if n := value[int](t, pooled, changed); n != 0 {
			t.Errorf("%d settings leaked to the next user of the connection", n)
		}
	}
}

func TestOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	db.SetMaxOpenConns(1)
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	if _, err := migrations.Down(t.Context(), db, withColumn(t)); err != nil {
		t.Fatal(err)
	}
	wantVersions(t, db)
	wantDefaults(t, db)
}

// Decoys stand before pg_catalog in the path: tables, functions, an operator and types.
func TestSearchPathDoesNotMatter(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	admin := open(t, address)
	mustExec(t, admin, createAccounts, `CREATE SCHEMA decoy;
		CREATE TABLE decoy.fence (n int); CREATE TABLE decoy.goose_version (n int); CREATE TABLE decoy.accounts (n int);
		CREATE TABLE decoy.pg_tables (schemaname text, tablename text);
		CREATE TABLE decoy.pg_attribute (n int); CREATE TABLE decoy.pg_class (n int);
		CREATE DOMAIN decoy.text AS pg_catalog.text CHECK (false); CREATE DOMAIN decoy.uuid AS pg_catalog.uuid CHECK (false);
		CREATE DOMAIN decoy.timestamptz AS pg_catalog.timestamptz CHECK (false);
		CREATE FUNCTION decoy.begin_migration(bigint, boolean) RETURNS void LANGUAGE sql AS 'SELECT 1/0';
		CREATE FUNCTION decoy.set_config(pg_catalog.text, pg_catalog.text, boolean) RETURNS pg_catalog.text
			LANGUAGE sql AS 'SELECT NULL::pg_catalog.text';
		CREATE FUNCTION decoy.pg_advisory_xact_lock(int, int) RETURNS void LANGUAGE sql AS '';
		CREATE FUNCTION decoy.to_regclass(pg_catalog.text) RETURNS regclass LANGUAGE sql AS 'SELECT NULL::regclass';
		CREATE FUNCTION decoy.octet_length(pg_catalog.text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT -1';
		CREATE FUNCTION decoy.never(bigint, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
		CREATE OPERATOR decoy.>= (LEFTARG = bigint, RIGHTARG = int, FUNCTION = decoy.never);
		CREATE OPERATOR decoy.> (LEFTARG = bigint, RIGHTARG = int, FUNCTION = decoy.never)`)
	db := open(t, withParameter(t, address, "search_path", "decoy, pg_catalog, public"))
	up(t, db, withColumn(t))
	up(t, db, withColumn(t))

	wantVersions(t, admin, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, admin)
	const claimed = `SELECT claimed FROM fencepost.claim('r', 1, '00000000-0000-0000-0000-000000000001')`
	if !value[bool](t, db, claimed) {
		t.Error("a claim under the hostile path was refused")
	}
	const types = `SELECT count(*) FROM pg_attribute WHERE attrelid IN ('fencepost.fence'::regclass,
		'fencepost.goose_version'::regclass) AND attnum > 0 AND atttypid >= 16384`
	if n := value[int](t, admin, types); n != 0 {
		t.Errorf("%d columns have a decoy's type", n)
	}
	if n := value[int](t, admin, `SELECT count(*) FROM decoy.fence`); n != 0 {
		t.Error("the decoy was written")
	}

	mustExec(t, admin, `UPDATE public.accounts SET last_fencing_token = 3 WHERE id = 1`)
	if _, err := migrations.Down(t.Context(), db, withColumn(t)); !errors.Is(err, migrations.ErrTokensRemain) {
		t.Errorf("Down = %v, want ErrTokensRemain", err)
	}
	wantVersions(t, admin, withOwn(t, tokenVersion)...) // the column's refusal, not the fence's
	opts := withColumn(t)
	opts.Force = true
	if _, err := migrations.Down(t.Context(), db, opts); err != nil {
		t.Errorf("forced Down: %v", err)
	}
	wantVersions(t, admin)
}

// A caller's own migration keeps its search_path.
func TestACallersMigrationKeepsItsSearchPath(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	mustExec(t, open(t, address), `CREATE SCHEMA app`)
	db := open(t, withParameter(t, address, "search_path", "app"))
	up(t, db, also(2000, `CREATE TABLE mine (n int)`))
	if !value[bool](t, db, `SELECT to_regclass('app.mine') IS NOT NULL`) {
		t.Error("the table is not in the schema of the path")
	}
}

// Case 22: a pooler that does not support prepared statements is distinguished from other errors.
func TestCase22_PreparedStatementsBehindAPoolerAreExplained(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	_, err := migrations.Up(t.Context(), db, also(2000, `EXECUTE nobody_prepared_this`))
	if sqlState(err) != "26000" {
		t.Fatalf("Up = %v, want SQLSTATE 26000", err)
	}
	if want := "default_query_exec_mode=exec"; !contains(err, want) {
		t.Errorf("the error does not name %s: %v", want, err)
	}
}
