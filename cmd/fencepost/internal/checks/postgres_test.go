package checks_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/checks"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// at are the options for one database.
func at(address string) checks.Options {
	return checks.Options{HasDatabase: true, Database: address}
}

// ownDatabase is the address of the only database of a server, with migrations.
func ownDatabase(t *testing.T, args ...string) string {
	t.Helper()
	address := testenv.OwnPostgres(t, args...).URL()
	db := stdlib.OpenDBFromPool(testenv.PoolOn(t, address))
	defer func() { _ = db.Close() }()
	if _, err := migrations.Up(t.Context(), db, nil); err != nil {
		t.Fatal(err)
	}
	return address
}

// A server that is set up as docs/operating.md recommends, for an application's role and for an operator's.
func TestAPostgreSQLThatIsSetUpRight(t *testing.T) {
	t.Parallel()
	address := ownDatabase(t, "-c", "fsync=on", "-c", "full_page_writes=on", "-c", "synchronous_commit=on")
	pool := testenv.PoolOn(t, address)
	app := as(t, pool, address)
	execute(t, pool, "SELECT fencepost.grant_application('$ROLE');\n"+
		"CREATE TABLE invoice (id text PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0);\n"+
		"CREATE TABLE plain (id text PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0);\n"+
		"SELECT fencepost.protect('invoice', 'billing', 'invoice:', '{id}');\n"+
		"GRANT SELECT, INSERT, UPDATE ON invoice, plain TO $ROLE")
	opts := at(app)
	opts.Advisory = true
	got := look(t, &opts)
	for _, name := range []string{
		"connect", "version", "primary", "pooler", "encoding", "fsync", "full_page_writes", "synchronous_commit", "standbys",
		"isolation", "time_limits", "lock_table", "migrations", "role", "functions", "transactions", "prepared",
		"dead_tuples", "ids",
	} {
		want(t, got, name, checks.OK, "")
	}
	for _, name := range []string{"grants", "tables"} {
		want(t, got, name, checks.Skipped, "--operator")
	}
	execute(t, pool, "SELECT fencepost.revoke_all('$ROLE');\nSELECT fencepost.grant_operator('$ROLE')")
	got = look(t, &opts)
	want(t, got, "role", checks.OK, "an operator's")
	want(t, got, "functions", checks.Warning, "no role")
	want(t, got, "grants", checks.OK, "no right")
	opts.Database = address
	execute(t, pool, "SELECT fencepost.grant_application('$ROLE')")
	got = look(t, &opts)
	want(t, got, "tables", checks.OK, "invoice: protected, every row as billing:invoice:{id}")
	want(t, got, "tables", checks.OK, "plain: rows carry tokens")
	want(t, got, "role", checks.Warning, "superuser")
}

// What a database or a role is given for its sessions.
func TestSettingsThatAreNotAsRecommended(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set   string
		check string
		level checks.Level
		words string
	}{
		"asynchronous": {"synchronous_commit = off", "synchronous_commit", checks.Warning, "loses work"},
		"serializable": {"default_transaction_isolation = serializable", "isolation", checks.Warning, "serializable"},
		"read-only":    {"default_transaction_read_only = on", "primary", checks.Fault, "read-only"},
		"impatient":    {"statement_timeout = '5s'", "time_limits", checks.Warning, "statement_timeout is 5s (by database)"},
		"lock_timeout": {"lock_timeout = '1s'", "time_limits", checks.Warning, "lock_timeout is 1s"},
		"patient":      {"statement_timeout = '5min'", "time_limits", checks.OK, "statement_timeout is 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testenv.Database(t)
			execute(t, testenv.PoolOn(t, address), "ALTER DATABASE $DB SET "+c.set)
			opts := at(address)
			got := look(t, &opts)
			want(t, got, c.check, c.level, c.words)
		})
	}
}

func TestEncodingsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	for address, c := range map[string]struct {
		level checks.Level
		words string
	}{
		testenv.WithEncoding(testenv.Database(t), "LATIN1"): {checks.Fault, "client_encoding is LATIN1"},
		testenv.EncodedDatabase(t, "LATIN1"):                {checks.Warning, "the database is LATIN1"},
		testenv.EncodedDatabase(t, "SQL_ASCII"):             {checks.Warning, "checks nothing"},
	} {
		opts := at(address)
		want(t, look(t, &opts), "encoding", c.level, c.words)
	}
}

// A server whose flags give up durability, and which waits for a standby that is not there.
func TestAPostgreSQLWhoseFlagsAreDangerous(t *testing.T) {
	t.Parallel()
	opts := at(testenv.OwnPostgres(t, "-c", "fsync=off", "-c", "full_page_writes=off", "-c",
		"max_locks_per_transaction=10", "-c", "max_prepared_transactions=0").URL())
	// Not from the start on: the server would wait for the standby with the first transactions that set it up.
	pool := testenv.PoolOn(t, opts.Database)
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const waits = "SELECT current_setting('synchronous_standby_names') = 'nobody'"
	if err := testenv.UntilQuery(t.Context(), pool, waits); err != nil {
		t.Fatal(err)
	}
	opts.Advisory = true
	got := look(t, &opts)
	want(t, got, "fsync", checks.Fault, "loses fences")
	want(t, got, "full_page_writes", checks.Fault, "tear pages")
	want(t, got, "standbys", checks.Fault, "no synchronous standby")
	want(t, got, "lock_table", checks.Warning, "max_locks_per_transaction is 10")
	want(t, got, "migrations", checks.Fault, `run "fencepost migrate up"`)
	want(t, got, "tables", checks.Skipped, "look at these first: migrations")
}

// A standby, a router that asks it, and what a failover to it would lose.
func TestAStandbyAndARouterAreSeen(t *testing.T) {
	t.Parallel()
	pair := testenv.PostgresPair(t)
	standby, primary := at(pair.Standby.URL()), at(pair.Primary.URL())
	got := look(t, &standby)
	want(t, got, "primary", checks.Fault, "a standby answers")
	got = look(t, &primary)
	want(t, got, "primary", checks.OK, "")
	want(t, got, "standbys", checks.Warning, "none is synchronous")
	router := at(testenv.Pgpool(t, pair, "postgres").URL())
	want(t, look(t, &router), "primary", checks.Fault, "standby answer")
}

func TestAPoolerIsSeen(t *testing.T) {
	t.Parallel()
	address := testenv.PgBouncer(t, testenv.Database(t), &services.PgBouncerOptions{PoolSize: 6}).URL()
	opts := at(address)
	want(t, look(t, &opts), "pooler", checks.Warning, "default_query_exec_mode=exec")
	opts.Advisory = true
	want(t, look(t, &opts), "pooler", checks.Fault, "NewAdvisory refuses it")
	opts = at(with(t, address, "default_query_exec_mode", "exec"))
	want(t, look(t, &opts), "pooler", checks.OK, "suits")
}

// What may be wrong with rights and tables, for one who may see it.
func TestWhatIsWrongInADatabase(t *testing.T) {
	t.Parallel()
	const protected = "CREATE TABLE invoice (id text PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0);\n" +
		"SELECT fencepost.protect('invoice', 'billing', 'invoice:', '{id}', mode => 'MODE')"
	enforced, observed := strings.Replace(protected, "MODE", "enforce", 1), strings.Replace(protected, "MODE",
		"observe", 1)
	for name, c := range map[string]struct {
		sql   string
		check string
		level checks.Level
		words string
	}{
		"no application": {"SELECT 1", "functions", checks.Warning, "no role"},
		"no table":       {"SELECT 1", "tables", checks.Warning, "no table"},
		"a lost function": {
			"SELECT fencepost.grant_application('$ROLE');\nREVOKE EXECUTE ON FUNCTION " +
				"fencepost.claim_now FROM $ROLE", "functions", checks.Fault,
			"may not call: claim_now > the schema's owner runs: fencepost grant",
		},
		"a right of all": {
			"GRANT EXECUTE ON FUNCTION fencepost.claim(text, bigint, uuid, text) TO PUBLIC", "grants",
			checks.Fault, "PUBLIC may EXECUTE",
		},
		"observed":      {observed, "tables", checks.Warning, "only logs"},
		"a trigger off": {enforced + ";\nALTER TABLE invoice DISABLE TRIGGER ALL", "tables", checks.Fault, "(disabled)"},
		"renamed":       {enforced + ";\nALTER TABLE invoice RENAME TO bill", "tables", checks.Warning, "(renamed)"},
		"a column of NULL": {
			"CREATE TABLE t (id text PRIMARY KEY, last_fencing_token bigint)", "tables", checks.Fault,
			"may be NULL",
		},
		"a short column": {
			"CREATE TABLE t (id text PRIMARY KEY, last_fencing_token int NOT NULL)", "tables",
			checks.Fault, "is not bigint",
		},
		"no key": {
			"CREATE TABLE t (id text, last_fencing_token bigint NOT NULL)", "tables", checks.Warning,
			"no primary key",
		},
		"an owner's application": {
			enforced + ";\nSELECT fencepost.grant_application('$ROLE');\nALTER TABLE invoice OWNER TO $ROLE",
			"tables", checks.Warning, "take the protection away",
		},
		"a blind application": {
			enforced + ";\nSELECT fencepost.grant_application('$ROLE');\nGRANT INSERT ON invoice TO $ROLE",
			"tables", checks.Fault, "may not read or stamp",
		},
		"nobody writes": {
			enforced + ";\nSELECT fencepost.grant_application('$ROLE')", "tables", checks.Warning,
			"no application may write",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := testenv.Database(t)
			pool := testenv.PoolOn(t, address)
			as(t, pool, address)
			execute(t, pool, c.sql)
			opts := at(address)
			want(t, look(t, &opts), c.check, c.level, c.words)
		})
	}
}

// A role that was granted nothing, and one that may not ask what it is asked.
func TestWhatARoleMayNotSeeIsSkipped(t *testing.T) {
	t.Parallel()
	address := testenv.Database(t)
	pool := testenv.PoolOn(t, address)
	opts := at(as(t, pool, address))
	want(t, look(t, &opts), "role", checks.Fault, "was granted nothing")
	execute(t, pool, "SELECT fencepost.grant_application('$ROLE');\nREVOKE SELECT ON pg_catalog.pg_settings FROM PUBLIC")
	got := look(t, &opts)
	want(t, got, "time_limits", checks.Skipped, "permission denied")
	want(t, got, "role", checks.OK, "an application's")
	execute(t, pool, "REVOKE USAGE ON SCHEMA fencepost FROM $ROLE")
	want(t, look(t, &opts), "role", checks.Fault, "fencepost grant")
}

// What grows or is held open, with limits that are reached at once.
func TestWhatIsOpenAndWhatGrows(t *testing.T) {
	t.Parallel()
	address := ownDatabase(t, "-c", "max_prepared_transactions=5", "-c", "autovacuum=off")
	pool := testenv.PoolOn(t, address)
	opts := checks.Edited(at(address), checks.Limits{Old: time.Nanosecond, Dead: 1, IDs: 1})
	leaveDead(t, address, pool)
	want(t, look(t, opts), "transactions", checks.OK, "no transaction")
	holdOpen(t, pool, "SELECT fencepost.claim('n:open', 1, gen_random_uuid())")
	const prepare = `BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'left'`
	if _, err := pool.Exec(t.Context(), prepare, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	got := look(t, opts)
	want(t, got, "transactions", checks.Warning, "holds up the next claim")
	want(t, got, "transactions", checks.Warning, "pg_terminate_backend(")
	want(t, got, "prepared", checks.Warning, "1 prepared")
	want(t, got, "dead_tuples", checks.Warning, "public.t has 99 dead tuples")
	want(t, got, "ids", checks.Fault, "ids are in use")
	sane := at(address)
	got = look(t, &sane)
	for _, name := range []string{"transactions", "prepared", "dead_tuples", "ids"} {
		want(t, got, name, checks.OK, "")
	}
}

// holdOpen leaves a transaction open until the test ends.
func holdOpen(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	if _, err := tx.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// leaveDead makes a table with 99 dead tuples. What a session did is counted once it has ended.
func leaveDead(t *testing.T, address string, counted *pgxpool.Pool) {
	t.Helper()
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, pool, "CREATE TABLE t (id int PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0);\n"+
		"INSERT INTO t SELECT generate_series(1, 100);\nDELETE FROM t WHERE id > 1")
	pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const posted = `SELECT n_dead_tup = 99 FROM pg_stat_all_tables WHERE relid = 't'::regclass`
	if err := testenv.UntilQuery(ctx, counted, posted); err != nil {
		t.Fatal(err)
	}
}
