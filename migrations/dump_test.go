package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// guarded returns the address of a database with two tables that two roles own and protect, one by one column of rows
// and one as a whole, and one claim.
func guarded(t *testing.T) (address string, roles [2]string) {
	t.Helper()
	address = testenv.EmptyDatabase(t)
	db := open(t, address)
	up(t, db, nil)
	mustExec(t, db, `CREATE SCHEMA app`)
	for i, table := range []string{"item", "part"} {
		roles[i] = loginRole(t, db, table)
		role := quoted(roles[i])
		mustExec(t, db, value[string](t, db, `SELECT fencepost.grant_owner(quote_ident($1::text)::regrole)::text`, roles[i]),
			`GRANT USAGE, CREATE ON SCHEMA app TO `+role,
			`CREATE TABLE app.`+table+` (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL DEFAULT 0)`,
			`INSERT INTO app.`+table+` SELECT generate_series(1, 300)`,
			`ALTER TABLE app.`+table+` OWNER TO `+role)
	}
	item, part := open(t, asRole(t, address, roles[0])), open(t, asRole(t, address, roles[1]))
	mustExec(t, item, `SELECT fencepost.protect('app.item', 'n-1', E'it''em\n:"%', '{id}')`)
	mustExec(t, part, `SELECT fencepost.protect('app.part', 'n', 'all', mode => 'observe', replicated => true)`)
	mustExec(t, db, claimOne)
	return address, roles
}

const rolePassword = "for one database alone"

// loginRole makes a role that may log in; it ends with the test.
func loginRole(t *testing.T, db *sql.DB, what string) string {
	t.Helper()
	role := value[string](t, db, `SELECT current_database()`) + "_" + what
	mustExec(t, db, `CREATE ROLE `+quoted(role)+` LOGIN PASSWORD '`+rolePassword+`'`)
	t.Cleanup(func() {
		// The test's own context has ended.
		for _, drop := range []string{`DROP OWNED BY ` + quoted(role) + ` CASCADE`, `DROP ROLE ` + quoted(role)} {
			if _, err := db.ExecContext(context.Background(), drop); err != nil {
				t.Error(err)
			}
		}
	})
	return role
}

// asRole returns the address for a role that loginRole made.
func asRole(t *testing.T, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address does not parse")
	}
	u.User = url.UserPassword(role, rolePassword)
	return u.String()
}

// rules are all rules, as protect was told.
const rules = `SELECT coalesce(string_agg(p::text, ' ' ORDER BY p.table_name), '') FROM fencepost.protected AS p`

// wantProtected checks that a database's protections are there, with the rules that protect recorded.
func wantProtected(t *testing.T, db *sql.DB, want string) {
	t.Helper()
	if got := value[string](t, db, rules); got != want {
		t.Errorf("rules %s, want %s", got, want)
	}
	problems := value[string](t, db, `SELECT coalesce(string_agg(v::text, E'\n'), '') FROM fencepost.verify() AS v`)
	if problems != "" {
		t.Errorf("problems: %s", problems)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO app.item (id) VALUES (-1)`); sqlState(err) != "ZF004" {
		t.Errorf("a write without a claim: %v", err)
	}
}

func TestCase46_ADumpBringsTheProtectionsRulesWhoeverMakesIt(t *testing.T) {
	t.Parallel()
	address, roles := guarded(t)
	db := open(t, address)
	want := value[string](t, db, rules)
	reader := loginRole(t, db, "reader")
	// pg_read_all_data comes with PostgreSQL 14. The right that replaces it before that is too wide, and is reported for
	// the dump's copy.
	mayReadAll := value[int](t, db, `SELECT current_setting('server_version_num')::int`) >= 140000
	if !mayReadAll {
		for _, role := range []string{reader, roles[0]} {
			mustExec(t, db, `GRANT USAGE ON SCHEMA app, fencepost TO `+quoted(role),
				`GRANT SELECT ON ALL TABLES IN SCHEMA app, fencepost TO `+quoted(role),
				`GRANT SELECT ON ALL SEQUENCES IN SCHEMA app, fencepost TO `+quoted(role))
		}
	} else {
		mustExec(t, db, `GRANT pg_read_all_data TO `+quoted(reader)+`, `+quoted(roles[0]))
	}
	for name, c := range map[string]struct {
		role string
		args []string
	}{
		"a role that may read all data":  {role: reader},
		"the owner of a protected table": {role: roles[0]},
		"with row security enabled":      {role: reader, args: []string{"--enable-row-security"}},
		"the owner, with row security":   {role: roles[0], args: []string{"--enable-row-security"}},
		"as INSERT, without owners":      {role: reader, args: []string{"--inserts", "--no-owner"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dump := testenv.Dump(t, asRole(t, address, c.role), c.args...)
			copied := testenv.EmptyDatabase(t)
			if said := testenv.Restore(t, copied, dump); said != "" {
				t.Errorf("restore: %s", said)
			}
			db := open(t, copied)
			if !mayReadAll {
				mustExec(t, db, `REVOKE SELECT ON fencepost.fence, fencepost.floor, fencepost.secret, fencepost.fences,
					fencepost.keys FROM `+quoted(reader)+`, `+quoted(roles[0]))
			}
			wantProtected(t, db, want)
		})
	}
}

// The control: a policy in place of the trigger.
func TestCase46_ControlUnderAPolicyADumpFailsOrLosesRules(t *testing.T) {
	t.Parallel()
	address, roles := guarded(t)
	db := open(t, address)
	mustExec(t, db, `DROP TRIGGER check_rule_owner ON fencepost.protected`,
		`ALTER TABLE fencepost.protected ENABLE ROW LEVEL SECURITY`,
		`CREATE POLICY owners ON fencepost.protected USING (
			pg_has_role(current_user, (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relid), 'USAGE'))`,
		`GRANT SELECT ON ALL TABLES IN SCHEMA app, fencepost TO `+quoted(roles[0]),
		`GRANT SELECT ON ALL SEQUENCES IN SCHEMA fencepost TO `+quoted(roles[0]))
	if _, err := testenv.TryDump(t, asRole(t, address, roles[0])); err == nil {
		t.Error("the dump did not fail")
	}
	dump := testenv.Dump(t, asRole(t, address, roles[0]), "--enable-row-security")
	if strings.Contains(dump, "app.part\tapp\tpart") || !strings.Contains(dump, "app.item\tapp\titem") {
		t.Error("the dump has the rule of another's table, or not its own")
	}
}

// The trigger that replaces the policy limits each owner to the rules of its own tables.
func TestCase46_AnOwnerChangesNoRuleButItsOwn(t *testing.T) {
	t.Parallel()
	address, roles := guarded(t)
	part := open(t, asRole(t, address, roles[1]))
	want := value[string](t, open(t, address), rules)
	for _, sql := range []string{
		`DELETE FROM fencepost.protected WHERE table_name = 'item'`,
		`DELETE FROM fencepost.protected`,
		`INSERT INTO fencepost.protected SELECT 'pg_class', 'pg_catalog', 'pg_class', 'n', 'x', '{}', 'x', 'observe', false`,
		`UPDATE fencepost.protected SET mode = 'observe'`,
		`TRUNCATE fencepost.protected`,
		`ALTER TABLE fencepost.protected DISABLE TRIGGER check_rule_owner`,
	} {
		if _, err := part.ExecContext(t.Context(), sql); sqlState(err) != "42501" {
			t.Errorf("%s: %v, want SQLSTATE 42501", sql, err)
		}
	}
	if got := value[string](t, open(t, address), rules); got != want {
		t.Errorf("rules %s, want %s", got, want)
	}
	mustExec(t, part, `SELECT fencepost.unprotect('app.part')`)
}

// clone returns the address of a database that has the schema of another, and none of its data.
func clone(t *testing.T, address string) string {
	t.Helper()
	copied := testenv.EmptyDatabase(t)
	if said := testenv.Restore(t, copied, testenv.Dump(t, address, "--schema-only")); said != "" {
		t.Errorf("restore: %s", said)
	}
	return copied
}

func TestCase47_UpCompletesACloneOfTheSchemaAlone(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	want := value[string](t, open(t, address), rules)
	db := open(t, clone(t, address))

	// Closed meanwhile, and told as it is.
	if _, err := db.ExecContext(t.Context(), `INSERT INTO app.item (id) VALUES (1)`); sqlState(err) != "ZF004" {
		t.Errorf("a write into the clone: %v", err)
	}
	all, err := migrations.Status(t.Context(), db, nil)
	if err != nil || !equal(all, ownMigrations(t, migrations.Found)) {
		t.Errorf("Status = %+v, %v", all, err)
	}
	problems, err := migrations.Problems(t.Context(), db)
	if err != nil || len(problems) != 4 {
		t.Errorf("Problems = %q, %v, want the secret, two rules and the floors", problems, err)
	}

	if recorded := withoutTimes(t, up(t, db, nil)); !equal(recorded, ownMigrations(t, migrations.Found)) {
		t.Errorf("Up = %+v", recorded)
	}
	wantVersions(t, db, withOwn(t)...)
	wantProtected(t, db, want)
	wantNothingAmiss(t, db)
	// It goes up and down like any other.
	if _, err := migrations.Down(t.Context(), db, &migrations.Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	up(t, db, nil)
}

func wantNothingAmiss(t *testing.T, db *sql.DB) {
	t.Helper()
	problems, err := migrations.Problems(t.Context(), db)
	if err != nil || len(problems) != 0 {
		t.Errorf("Problems = %q, %v", problems, err)
	}
	if again := up(t, db, nil); len(again) != 0 {
		t.Errorf("Up again = %+v", again)
	}
}

// Eight programs come to the clone at once, each with migrations of its own that the clone has as well.
func TestCase47_EightProcessesCompleteAClone(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	mustExec(t, open(t, address), createAccounts)
	up(t, open(t, address), withColumn(t))
	copied := clone(t, address)
	wantSuccess(t, startAll(t, migrators, job{URL: copied, Column: true}))
	db := open(t, copied)
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, db)
	wantNothingAmiss(t, db)
}

// The secret proves the setting that counts lines. Without a secret nothing is proved, rather than everything.
func TestCase47_AForgedCountSilencesNoClone(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	for name, complete := range map[string]bool{"before migrate up": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, lines := openNoticed(t, clone(t, address))
			if complete {
				up(t, db, nil)
			}
			for _, forged := range []string{"100 x", "100 ", "99 " + strings.Repeat("0", 64)} {
				tx := begin(t, db, `SET LOCAL client_min_messages = log`)
				if _, err := tx.ExecContext(t.Context(), `SELECT set_config('fencepost.logged', $1, true)`, forged); err != nil {
					t.Fatal(err)
				}
				before := lines.Load()
				if _, err := tx.ExecContext(t.Context(), `INSERT INTO app.part SELECT generate_series(1, 250)`); err != nil {
					t.Fatal(err)
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				n := lines.Load() - before
				if n < 100 || complete && n != 101 { // the last says that the rest is left out
					t.Errorf("forged %q: %d lines", forged, n)
				}
			}
		})
	}
}

// openNoticed is open, and also counts the server's notices, including lines for its log if the session asks for them.
func openNoticed(t *testing.T, address string) (*sql.DB, *atomic.Int64) {
	t.Helper()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal("the address does not parse")
	}
	lines := new(atomic.Int64)
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { lines.Add(1) }
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db, lines
}

// A full dump contains the secret of its database, and everybody who reads the dump knows that secret.
func TestCase47_ASecretThatCameWithADumpIsRenewed(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	copied := testenv.EmptyDatabase(t)
	if said := testenv.Restore(t, copied, testenv.Dump(t, address)); said != "" {
		t.Errorf("restore: %s", said)
	}
	db := open(t, copied)
	const secret = `SELECT secret::text FROM fencepost.secret`
	dumped := value[string](t, open(t, address), secret)
	if value[string](t, db, secret) != dumped {
		t.Error("the dump did not bring the secret: this test shows nothing")
	}
	up(t, db, nil)
	if value[string](t, db, secret) == dumped {
		t.Error("the secret is still the one of the dump")
	}
	wantNothingAmiss(t, db)
}

// Restoring data alone does not pass a protection. Into a clone with protections, the data goes in by an operator's
// bypass.
func TestCase47_DataAloneIsRefusedByTheProtection(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	want := value[string](t, open(t, address), rules)
	copied := clone(t, address)
	db := open(t, copied)
	data := testenv.Dump(t, address, "--data-only")
	if said := testenv.Restore(t, copied, data); !strings.Contains(said, "app.item refused") {
		t.Errorf("restore: %s", said)
	}
	if n := value[int](t, db, `SELECT count(*) FROM app.item`); n != 0 {
		t.Errorf("%d rows came in", n)
	}
	// Everything else has been restored, including the version table.
	up(t, db, nil)
	wantProtected(t, db, want)
	wantNothingAmiss(t, db)
}

// A database with only some tables of the schema cannot be migrated.
func TestCase47_APartOfTheSchemaIsRefused(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	copied := testenv.EmptyDatabase(t)
	db := open(t, copied)
	mustExec(t, db, `CREATE SCHEMA fencepost`)
	testenv.Restore(t, copied, testenv.Dump(t, address, "--table=fencepost.fence"))
	all, err := migrations.Status(t.Context(), db, nil)
	if err != nil || all[0].State != migrations.Partial || all[1].State != migrations.Pending {
		t.Errorf("Status = %+v, %v", all, err)
	}
	_, err = migrations.Up(t.Context(), db, nil)
	if !contains(err, "fence stands and") || !contains(err, "claim") || !errors.Is(err, migrations.ErrPartial) {
		t.Errorf("Up = %v, want ErrPartial", err)
	}
	if value[bool](t, db, `SELECT to_regclass('fencepost.goose_version') IS NOT NULL`) {
		t.Error("Up changed something")
	}
}
