package migrations_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// wrongRights returns the problems with rights that verify reports, one line each.
func wrongRights(t *testing.T, db *sql.DB) string {
	t.Helper()
	return value[string](
		t,
		db,
		`SELECT coalesce(string_agg(relation || ': ' || problem, E'\n'), '') FROM fencepost.verify() WHERE kind = 'right'`,
	)
}

// wantRights checks that verify finds nothing, and migrate up neither.
func wantRights(t *testing.T, db *sql.DB) {
	t.Helper()
	if wrong := value[string](
		t,
		db,
		`SELECT coalesce(string_agg(v::text, E'\n'), '') FROM fencepost.verify() AS v`,
	); wrong != "" {
		t.Errorf("problems:\n%s", wrong)
	}
	wantNothingAmiss(t, db)
}

// wantStates runs statements as a role, each in its own transaction, and compares SQLSTATEs.
func wantStates(t *testing.T, db *sql.DB, want string, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := db.ExecContext(t.Context(), sql); sqlState(err) != want {
			t.Errorf("%s: %v, want SQLSTATE %q", sql, err, want)
		}
	}
}

// A dump without owners and privileges leaves every function to PUBLIC. Nothing is open all the same, verify says what
// is wrong, and migrate up puts it right, though no migration is pending.
func TestCase35_ADumpWithoutPrivilegesOpensNothing(t *testing.T) {
	t.Parallel()
	address, _ := guarded(t)
	copied := testenv.EmptyDatabase(t)
	if said := testenv.Restore(t, copied, testenv.Dump(t, address, "-O", "-x")); said != "" {
		t.Errorf("restore: %s", said)
	}
	db := open(t, copied)
	role := loginRole(t, db, "anybody")
	mustExec(t, db, `GRANT USAGE ON SCHEMA app TO `+quoted(role), `GRANT ALL ON app.item TO `+quoted(role))
	anybody := open(t, asRole(t, copied, role))
	anybody.SetMaxOpenConns(1)
	pass := []string{
		`UPDATE app.item SET last_fencing_token = 9 WHERE id = 1`,
		`DELETE FROM app.item WHERE id = 1`,
		`TRUNCATE app.item`,
	}
	bypass := []string{
		`SELECT fencepost.bypass('x')`,
		`SELECT fencepost.bypass('x', 'app.item')`,
		`SELECT fencepost.begin_bypass('x', 'all')`,
	}
	mustExec(t, anybody, `SET fencepost.bypass = 'x'`)
	wantStates(t, anybody, "ZF004", pass...)
	for _, line := range []string{
		"fencepost.bypass(text): PUBLIC may EXECUTE",
		"fencepost.refuse_write", "fencepost.protection_",
	} {
		if wrong := wrongRights(t, db); !strings.Contains(wrong, line) {
			t.Errorf("%q is not among\n%s", line, wrong)
		}
	}
	grant := `SELECT fencepost.grant_application('` + quoted(role) + `')`
	mustExec(t, db, grant)
	wantStates(t, anybody, "42501", bypass...)
	wantStates(t, db, "42501", bypass[:2]...) // nobody was chosen, so nobody may
	wantStates(t, anybody, "ZF004", pass...)
	// A role that does not own the schema repairs nothing, and does not wait.
	if applied := up(t, anybody, nil); len(applied) != 0 || wrongRights(t, db) == "" {
		t.Errorf("Up of another role: %+v", applied)
	}

	if applied := up(t, db, nil); len(applied) != 0 {
		t.Errorf("Up = %+v", applied)
	}
	wantRights(t, db)
	wantStates(t, anybody, "42501", bypass...)
	wantStates(t, anybody, "ZF004", pass...)
	mustExec(t, anybody, `SELECT fencepost.claim('n:all', 9, '00000000-0000-4000-8000-000000000001')`)
}

// damages are changes of rights, each with a part of the problem that verify reports. %r is a role without rights.
var damages = map[string]struct{ do, said string }{
	"schema to all":    {`GRANT USAGE ON SCHEMA fencepost TO PUBLIC`, "fencepost: PUBLIC may USAGE"},
	"schema to create": {`GRANT CREATE ON SCHEMA fencepost TO %r`, "%r may CREATE"},
	"function to all": {
		`GRANT EXECUTE ON FUNCTION fencepost.enter TO PUBLIC`,
		"enter(text,bigint,uuid): PUBLIC may EXECUTE",
	},
	"bypass to all": {
		`GRANT EXECUTE ON FUNCTION fencepost.bypass(text) TO PUBLIC`,
		"bypass(text): PUBLIC may EXECUTE",
	},
	"inner function": {
		`GRANT EXECUTE ON FUNCTION fencepost.bypass_proof TO %r`,
		"bypass_proof(text,text): %r may EXECUTE",
	},
	"passed on": {
		`GRANT EXECUTE ON FUNCTION fencepost.log_line TO %r WITH GRANT OPTION`,
		"log_line(text): %r may EXECUTE",
	},
	"fence to read":  {`GRANT SELECT ON fencepost.fence TO %r`, "fencepost.fence: %r may SELECT"},
	"fence to write": {`GRANT UPDATE ON fencepost.fence TO PUBLIC`, "fencepost.fence: PUBLIC may UPDATE"},
	"nonces":         {`GRANT SELECT (resource, nonce) ON fencepost.fence TO %r`, "%r may SELECT column nonce"},
	"a token":        {`GRANT UPDATE (token) ON fencepost.fence TO %r`, "%r may UPDATE column token"},
	"secret":         {`GRANT SELECT ON fencepost.secret TO %r`, "fencepost.secret: %r may SELECT"},
	"rules":          {`GRANT ALL ON fencepost.protected TO %r`, "fencepost.protected: %r may"},
	"versions":       {`GRANT INSERT ON fencepost.goose_version TO %r`, "fencepost.goose_version: %r may INSERT"},
	"ledger":         {`GRANT DELETE ON fencepost.ledger TO %r`, "fencepost.ledger: %r may DELETE"},
	"invoker": {
		`ALTER FUNCTION fencepost.enter(text, bigint, uuid) SECURITY INVOKER`,
		"does not run with its owner's rights",
	},
	"search_path gone": {`ALTER FUNCTION fencepost.claim RESET search_path`, "runs under the caller's search_path"},
	"search_path changed": {
		`ALTER FUNCTION fencepost.bypass_reason SET search_path = public`,
		"runs under the caller's search_path",
	},
	"another owner": {
		`ALTER FUNCTION fencepost.refuse_truncate() OWNER TO CURRENT_USER`,
		"refuse_truncate(): it is ",
	},
	"another table's owner": {`ALTER TABLE fencepost.secret OWNER TO %r`, "fencepost.secret: it is %r's"},
	"owner's function":      {`REVOKE EXECUTE ON FUNCTION fencepost.check_write FROM CURRENT_USER`, "may not EXECUTE"},
	"owner's table":         {`REVOKE SELECT ON fencepost.secret FROM CURRENT_USER`, "may not SELECT"},
	"an application's part": {
		`GRANT EXECUTE ON FUNCTION fencepost.enter(text, bigint, uuid) TO %r`,
		"claim(text,bigint,uuid,text): %r may not EXECUTE",
	},
	"a table owner's part": {
		`SELECT fencepost.grant_owner('%r'); REVOKE SELECT ON fencepost.protected FROM %r`,
		"fencepost.protected: %r may not SELECT",
	},
	"an application's USAGE": {
		`SELECT fencepost.grant_application('%r'); REVOKE USAGE ON SCHEMA fencepost FROM %r`,
		"fencepost: %r may not USAGE",
	},
	"fences to write": {`GRANT DELETE ON fencepost.fences TO %r`, "fencepost.fences: %r may DELETE"},
	"fences to all":   {`GRANT SELECT ON fencepost.fences TO PUBLIC`, "fencepost.fences: PUBLIC may SELECT"},
	"a column of fences": {
		`GRANT UPDATE (token) ON fencepost.fences TO %r`,
		"fencepost.fences: %r may UPDATE column token",
	},
	"another view's owner": {`ALTER VIEW fencepost.fences OWNER TO %r`, "fencepost.fences: it is %r's"},
	"an operator's part": {
		`GRANT SELECT ON fencepost.fences TO %r`,
		"fencepost.keys: %r may not SELECT",
	},
	"an operator's verify": {
		`SELECT fencepost.grant_operator('%r'); REVOKE EXECUTE ON FUNCTION fencepost.verify FROM %r`,
		"fencepost.verify(): %r may not EXECUTE",
	},
	"an application's Up": {
		`SELECT fencepost.grant_application('%r'); REVOKE SELECT ON fencepost.goose_version FROM %r`,
		"fencepost.goose_version: %r may not SELECT",
	},
}

// Whatever is done to rights, verify finds it, and migrate up puts it right: here as an ordinary role, which made
// all of it.
func TestCase35_UpPutsRightWhatVerifyFinds(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	admin := open(t, address)
	migrator, other := loginRole(t, admin, "migrator"), loginRole(t, admin, "other")
	database := quoted(value[string](t, admin, `SELECT current_database()`))
	mustExec(
		t,
		admin,
		`GRANT CREATE ON DATABASE `+database+` TO `+quoted(migrator),
		`GRANT `+quoted(other)+` TO `+quoted(migrator),
	)
	db := open(t, asRole(t, address, migrator))
	up(t, db, nil)
	wantRights(t, db)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			by := db
			if strings.Contains(damage.do, "OWNER TO") {
				by = admin // who owns something in the schema needs CREATE there; a superuser does not ask
			}
			for _, sql := range strings.Split(strings.ReplaceAll(damage.do, "%r", quoted(other)), "; ") {
				mustExec(t, by, sql)
			}
			said := strings.ReplaceAll(damage.said, "%r", value[string](t, db, `SELECT quote_ident($1)`, other))
			if wrong := wrongRights(t, admin); !strings.Contains(wrong, said) {
				t.Errorf("%q is not among\n%s", said, wrong)
			}
			up(t, by, nil)
			wantRights(t, admin)
			mustExec(t, db, `SELECT fencepost.revoke_all('`+quoted(other)+`')`)
			wantRights(t, db)
		})
	}
	// Rights that are granted as the documentation says are no problem.
	mustExec(
		t,
		db,
		`SELECT fencepost.grant_application('`+quoted(other)+`')`,
		`SELECT fencepost.grant_owner('`+quoted(other)+`')`,
		`SELECT fencepost.grant_operator('`+quoted(other)+`')`,
		`GRANT EXECUTE ON FUNCTION fencepost.bypass(text), fencepost.bypass(text, text[]) TO `+quoted(other),
		`GRANT SELECT ON fencepost.goose_version, fencepost.ledger TO `+quoted(
			other,
		),
		`GRANT SELECT (resource, token) ON fencepost.fence TO `+quoted(other),
	)
	wantRights(t, db)
}

// A role that may CREATE in the schema may put a function there. Up does not give that function to the owner, because
// it would then run with the owner's rights.
func TestCase35_UpTakesOverNoFunctionOfAnother(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	db := open(t, address)
	up(t, db, nil)
	author, friend := loginRole(t, db, "author"), loginRole(t, db, "friend")
	// A name and rights that a function of a protection may have.
	const function = `fencepost.protection_00000000000000000000000000000000()`
	mustExec(
		t,
		db,
		`GRANT ALL ON SCHEMA fencepost TO `+quoted(author),
		`GRANT USAGE ON SCHEMA fencepost TO `+quoted(friend),
	)
	mustExec(
		t,
		open(t, asRole(t, address, author)),
		`CREATE FUNCTION `+function+` RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user'`,
		`GRANT EXECUTE ON FUNCTION `+function+` TO `+quoted(friend),
	)
	called := open(t, asRole(t, address, friend))

	up(t, db, nil)
	if runsAs := value[string](t, called, `SELECT `+function); runsAs != author {
		t.Errorf("the function of %s runs as %s", author, runsAs)
	}
	if wrong := wrongRights(t, db); !strings.Contains(wrong, function+": it is ") {
		t.Errorf("the function is not among\n%s", wrong)
	}
	// The control: an owner who takes the function over by hand gives away the owner's rights.
	mustExec(t, db, `ALTER FUNCTION `+function+` OWNER TO CURRENT_USER`)
	if runsAs := value[string](t, called, `SELECT `+function); runsAs == author {
		t.Errorf("taken over, the function still runs as %s", runsAs)
	}
}

// Default privileges of a deployment, which apply to everything that its migrator creates, do not apply here.
func TestCase35_DefaultPrivilegesGiveNothing(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	db := open(t, address)
	role := loginRole(t, db, "app")
	mustExec(
		t,
		db,
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO `+quoted(role),
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO `+quoted(
			role,
		),
		`ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO `+quoted(role),
	)
	up(t, db, nil)
	wantRights(t, db)
	app := open(t, asRole(t, address, role))
	wantStates(
		t,
		app,
		"42501",
		`SELECT * FROM fencepost.fence`,
		`UPDATE fencepost.fence SET token = 1`,
		`SELECT * FROM fencepost.secret`,
		`SELECT * FROM fencepost.fences`,
		`DELETE FROM fencepost.fences`,
		`SELECT * FROM fencepost.keys`,
		`SELECT fencepost.bypass('x')`,
		`SELECT fencepost.enter('r', 1, gen_random_uuid())`,
		`SELECT fencepost.verify()`,
		`CREATE TABLE fencepost.mine ()`,
	)
}

// If the rights are as they should be, Up only asks.
func TestCase35_RightsThatAreRightAreOnlyReadOf(t *testing.T) {
	t.Parallel()
	address := testenv.EmptyDatabase(t)
	db := open(t, address)
	up(t, db, nil)
	readOnly := open(t, withParameter(t, address, "default_transaction_read_only", "on"))
	lock := begin(t, open(t, address), takeMigrationLock)
	if _, err := migrations.Up(t.Context(), readOnly, nil); err != nil {
		t.Error(err)
	}
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `GRANT EXECUTE ON FUNCTION fencepost.check_write TO PUBLIC`)
	if _, err := migrations.Up(t.Context(), readOnly, nil); sqlState(err) != "25006" { // the control: it writes
		t.Errorf("Up of a session that only reads: %v", err)
	}
}
