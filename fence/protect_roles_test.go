package fence_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// newRole creates a role for the test and returns its name, quoted. It is dropped when the test ends.
func newRole(t *testing.T, pool *pgxpool.Pool, what, options string) string {
	t.Helper()
	role := pgx.Identifier{pool.Config().ConnConfig.Database + ` "` + what + `"`}.Sanitize()
	fencetest.Exec(t, pool, `CREATE ROLE `+role+` `+options)
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), `DROP OWNED BY `+role+` CASCADE; DROP ROLE `+role); err != nil {
			t.Errorf("dropping role %s: %v", role, err)
		}
	})
	return role
}

// logIn returns a pool of sessions that logged in as a new role.
func logIn(t *testing.T, admin *pgxpool.Pool, what string) (role string, pool *pgxpool.Pool) {
	t.Helper()
	const password = "for one database alone"
	role = newRole(t, admin, what, `LOGIN PASSWORD '`+password+`'`)
	u, err := url.Parse(admin.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(strings.ReplaceAll(role[1:len(role)-1], `""`, `"`), password)
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		t.Fatal(err)
	}
	pool, err = pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return role, pool
}

// layout is a deployment: a schema's owner, an owner of tables, and an application, each a role that logs in.
type layout struct {
	admin, owner, app *pgxpool.Pool
	ownerRole         string
	appRole           string
}

func deploy(t *testing.T) layout {
	t.Helper()
	l := layout{admin: testenv.Pool(t)}
	l.ownerRole, l.owner = logIn(t, l.admin, "owner")
	l.appRole, l.app = logIn(t, l.admin, "app")
	fencetest.Exec(
		t,
		l.admin,
		`SELECT fencepost.grant_owner($1::text::regrole), fencepost.grant_application($2::text::regrole)`,
		l.ownerRole,
		l.appRole,
	)
	fencetest.Exec(t, l.admin, `CREATE SCHEMA app AUTHORIZATION `+l.ownerRole)
	fencetest.Exec(t, l.owner, `CREATE TABLE app.item (
			id bigint PRIMARY KEY, value text NOT NULL DEFAULT '', updated_at timestamptz NOT NULL DEFAULT now(),
			last_fencing_token bigint NOT NULL DEFAULT 0);
		INSERT INTO app.item (id) VALUES (1), (2);
		GRANT USAGE ON SCHEMA app TO `+l.appRole+`;
		GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON app.item TO `+l.appRole)
	protect(t, l.owner, "app.item", "item:", "id")
	return l
}

// The owner of a table protects it without a right to create anything in the schema fencepost. The application claims,
// enters and writes, and has no right on fencepost's tables except to read the version table.
func TestLeastPrivilegeIsEnough(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	c := fencetest.MustRaise(t, l.app, fencetest.ClaimOf("test:item:1", 3))
	if err := under(
		t.Context(),
		l.app,
		sends(t.Context(), `UPDATE app.item SET value = 'app' WHERE id = 1`),
		c,
	); err != nil {
		t.Error(err)
	}
	if got := fencetest.Read(t, l.app, 1); got.Value != "app" || got.Token != 3 {
		t.Errorf("the row is %+v", got)
	}
	err := pgx.BeginFunc(t.Context(), l.app, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SELECT fencepost.begin_incarnation()`)
		fencetest.Exec(t, tx, `SELECT fencepost.settle(m.xid, m.incarnation) FROM fencepost.mark() AS m`)
		fencetest.Exec(t, tx, `SELECT fencepost.once_look('n', 'k', 'r', sha256('x'))`)
		fencetest.Exec(t, tx, `SELECT fencepost.once_begin('n', 'k', 'r', sha256('x')), fencepost.once_end('n', 'k', '1')`)
		fencetest.Exec(t, tx, `SELECT fencepost.once_purge('n', '25 hours', 10)`)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	wantNoProblems(t, l.owner)
	protectMode(t, l.owner, "observe", "app.item", "item:", "id")
	fencetest.Exec(t, l.app, `UPDATE app.item SET value = 'unaware' WHERE id = 2`)
	fencetest.Exec(t, l.owner, `SELECT fencepost.unprotect('app.item')`)
	wantNoProblems(t, l.owner)
}

// Each attempt of an application role against the fence and the protection is refused.
func TestAnApplicationRoleCannotGetAroundTheProtection(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	c := fencetest.MustRaise(t, l.app, fencetest.ClaimOf("test:item:1", 5))
	before := content(t, l.admin)
	const denied = "42501"
	for sql, want := range map[string]string{
		`UPDATE fencepost.fence SET token = 1`:                                          denied,
		`SELECT * FROM fencepost.fence`:                                                 denied,
		`DELETE FROM fencepost.fence`:                                                   denied,
		`TRUNCATE fencepost.fence`:                                                      denied,
		`SELECT * FROM fencepost.protected`:                                             denied,
		`DELETE FROM fencepost.protected`:                                               denied,
		`UPDATE fencepost.protected SET mode = 'observe'`:                               denied,
		`SELECT * FROM fencepost.ledger`:                                                denied,
		`DELETE FROM fencepost.ledger`:                                                  denied,
		`SELECT * FROM fencepost.incarnation`:                                           denied,
		`INSERT INTO fencepost.goose_version (version_id, is_applied) VALUES (9, true)`: denied,
		`CREATE TABLE fencepost.mine ()`:                                                denied,
		`CREATE FUNCTION fencepost.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`:       denied,
		`CREATE OR REPLACE FUNCTION fencepost.enter(resource text, token bigint, nonce uuid) RETURNS void
			LANGUAGE sql AS ''`: denied,
		`DROP FUNCTION fencepost.enter(text, bigint, uuid)`:                                                      denied,
		`ALTER FUNCTION fencepost.enter(text, bigint, uuid) SECURITY INVOKER`:                                    denied,
		`SELECT fencepost.check_write('test:item:1', 0, 0, 'UPDATE', 'observe')`:                                 denied,
		`SELECT fencepost.refuse_write('r', 0, 0, 'UPDATE', 'observe', '', 0)`:                                   denied,
		`SELECT fencepost.log_line('x')`:                                                                         denied,
		`SELECT fencepost.make_protection('app.item', 'test', 'item:', '{id}', 'last_fencing_token', 'observe')`: denied,
		`SELECT fencepost.protect('app.item', 'test', 'item:', '{id}', mode => 'observe')`:                       denied,
		`SELECT fencepost.unprotect('app.item')`:                                                                 denied,
		`SELECT fencepost.verify()`:                                                                              denied,
		`SELECT fencepost.bypass('please')`:                                                                      denied,
		`SELECT fencepost.grant_application(current_user::regrole)`:                                              denied,
		`SELECT fencepost.begin_migration(9, true)`:                                                              denied,
		`DROP TRIGGER "~fencepost" ON app.item`:                                                                  denied,
		`ALTER TABLE app.item DISABLE TRIGGER ALL`:                                                               denied,
		`CREATE TRIGGER "~x" BEFORE UPDATE ON app.item FOR EACH ROW
			EXECUTE FUNCTION suppress_redundant_updates_trigger()`: denied,
		`ALTER TABLE app.item DROP COLUMN last_fencing_token`: denied,
		`SET session_replication_role = replica`:              denied,
		`SET ROLE ` + l.ownerRole:                             denied,
		`TRUNCATE app.item`:                                   "ZF004",
		`SET fencepost.bypass = 'by hand'; UPDATE app.item SET value = 'x' WHERE id = 1`:             "ZF004",
		`SET fencepost.entered = ' "test:item:1":5:x'; UPDATE app.item SET value = 'x' WHERE id = 1`: "ZF001",
		`SELECT fencepost.enter('test:item:1', 5, gen_random_uuid())`:                                "ZF001",
	} {
		conn, err := l.app.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), sql)
		if got := sqlState(err); got != want {
			t.Errorf("%s: SQLSTATE %q, want %s: %v", sql, got, want, err)
		}
		fencetest.Exec(t, conn, `RESET ALL`)
		conn.Release()
	}
	if after := content(t, l.admin); after != before {
		t.Errorf("the table changed from %s to %s", before, after)
	}
	// A fence does not fall, and no claim comes near the end of the range.
	for tok, want := range map[int64]int64{4: 5, 5 + 1<<40 + 1: 5, 1<<63 - 1: 5} {
		var claimed bool
		var current int64
		err := l.app.QueryRow(t.Context(),
			`SELECT claimed, current FROM fencepost.claim($1, $2, gen_random_uuid())`, c.Resource, tok).
			Scan(&claimed, &current)
		if err != nil || claimed || current != want {
			t.Errorf("claim of %d: %t, fence at %d, %v", tok, claimed, current, err)
		}
	}
	wantNoProblems(t, l.owner)
}

// The application's own objects, in front of the search path and in pg_temp, are never used by fencepost's functions.
func TestSearchPathDoesNotMatterToTheProtection(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	c := fencetest.MustRaise(t, l.app, fencetest.ClaimOf("test:item:1", 5))
	fencetest.Exec(t, l.admin, `CREATE SCHEMA evil AUTHORIZATION `+l.appRole)
	conn, err := l.app.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	const trap = ` LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION
		USING ERRCODE = 'EV001', MESSAGE = pg_catalog.concat('ran as ', current_user); END $$;`
	fencetest.Exec(t, conn, `SET search_path = evil, pg_temp, pg_catalog;
		CREATE FUNCTION evil.eq(text, text) RETURNS boolean`+trap+`
		CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
		CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
		CREATE FUNCTION evil.cat(text, text) RETURNS text`+trap+`
		CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.cat);
		CREATE FUNCTION evil.lt(bigint, bigint) RETURNS boolean`+trap+`
		CREATE OPERATOR evil.>= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.lt);
		CREATE OPERATOR evil.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.lt);
		CREATE FUNCTION evil.split_part(text, text, integer) RETURNS text`+trap+`
		CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text`+trap+`
		CREATE FUNCTION evil.to_json(text) RETURNS json`+trap+`
		CREATE FUNCTION evil.hashtext(text) RETURNS integer`+trap+`
		CREATE FUNCTION evil.concat(text, bigint) RETURNS text`+trap+`
		CREATE FUNCTION evil.has_function_privilege(name, text, text) RETURNS boolean`+trap+`
		CREATE FUNCTION pg_temp.split_part(text, text, integer) RETURNS text`+trap+`
		CREATE TABLE evil.pg_class (oid oid);
		CREATE TEMP TABLE fence (resource text, token bigint, nonce uuid);
		SET search_path = evil, pg_temp, pg_catalog`)
	// The control: the traps are set.
	_, err = conn.Exec(t.Context(), `SELECT split_part('a'::pg_catalog.text, 'b', 1)`)
	wantState(t, err, "EV001")
	_, err = conn.Exec(t.Context(), `SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text`)
	wantState(t, err, "EV001")

	next := c
	next.Token = 6
	if err := fence.Raise(t.Context(), conn.Conn(), next, nil); err != nil {
		t.Errorf("claim: %v", err)
	}
	write := sends(t.Context(), `UPDATE app.item SET value = 'mine' WHERE id OPERATOR(pg_catalog.=) 1`)
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if err := fence.Enter(t.Context(), tx, next); err != nil {
			return err
		}
		return write(tx)
	})
	if err != nil || fencetest.Read(t, l.admin, 1).Value != "mine" {
		t.Errorf("write: %v", err)
	}
	wantState(t, pgx.BeginFunc(t.Context(), conn, write), "ZF004")
	_, err = conn.Exec(t.Context(), `DELETE FROM app.item`)
	wantState(t, err, "ZF004")
}

// The owner of one table has no rights over another owner's table, nor over the library's own.
func TestATableOwnerHasNoSayInAnothersProtection(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	strangerRole, stranger := logIn(t, l.admin, "stranger")
	fencetest.Exec(t, l.admin, `SELECT fencepost.grant_owner($1::text::regrole)`, strangerRole)
	fencetest.Exec(t, l.owner, `GRANT USAGE ON SCHEMA app TO `+strangerRole+`; GRANT ALL ON app.item TO `+strangerRole)
	for _, sql := range []string{
		`SELECT fencepost.protect('app.item', 'test', 'item:', '{id}', mode => 'observe')`,
		`SELECT fencepost.unprotect('app.item')`,
		`SELECT fencepost.remove_protection('app.item')`,
		`INSERT INTO fencepost.protected SELECT 'app.item', 'app', 'item', 'x', 'x', '{}', 'x', 'observe', false`,
		`DELETE FROM fencepost.protected`,
		`SELECT * FROM fencepost.fence`,
		`CREATE TABLE fencepost.mine ()`,
		`SELECT fencepost.bypass('mine')`,
	} {
		_, err := stranger.Exec(t.Context(), sql)
		wantState(t, err, "42501")
	}
	wantNoProblems(t, l.owner)
	_, err := l.app.Exec(t.Context(), `UPDATE app.item SET value = 'x'`)
	wantState(t, err, "ZF004")
}

// The right to bypass belongs to the login: neither the setting, nor SET ROLE, nor an operator's session that becomes
// the application's gives it.
func TestBypassIsTheLoginsOwn(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	operatorRole, operator := logIn(t, l.admin, "operator")
	groupRole := newRole(t, l.admin, "operators", "")
	for _, role := range []string{operatorRole, groupRole} {
		fencetest.Exec(t, l.admin, `GRANT USAGE ON SCHEMA fencepost, app TO `+role+`; GRANT ALL ON app.item TO `+role+`;
			GRANT EXECUTE ON FUNCTION fencepost.bypass(text) TO `+role)
	}
	fencetest.Exec(t, l.admin, `GRANT USAGE ON SCHEMA fencepost TO `+l.appRole)
	try := func(pool *pgxpool.Pool, statements ...string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			for _, sql := range statements {
				if err := sends(t.Context(), sql)(tx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	const write = `UPDATE app.item SET value = 'operated' WHERE id = 1`
	if err := try(operator, `SELECT fencepost.bypass('x')`, write); err != nil {
		t.Errorf("the operator: %v", err)
	}
	wantState(t, try(operator, write), "ZF004")
	// The right may be revoked while the setting is in force.
	err := pgx.BeginFunc(t.Context(), operator, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `SELECT fencepost.bypass('x')`)
		fencetest.Exec(t, l.admin, `REVOKE EXECUTE ON FUNCTION fencepost.bypass(text) FROM `+operatorRole)
		return sends(t.Context(), write)(tx)
	})
	wantState(t, err, "ZF004")
	wantState(
		t,
		try(l.admin, `SELECT fencepost.bypass('x')`, `SET LOCAL SESSION AUTHORIZATION `+l.appRole, write),
		"ZF004",
	)
	wantState(t, try(l.app, `SET LOCAL fencepost.bypass = 'x'`, write), "ZF004")
	wantState(t, try(l.app, `SELECT fencepost.bypass('x')`), "42501")
	// A role that the application may SET ROLE to, and does not inherit from.
	fencetest.Exec(t, l.admin, `ALTER ROLE `+l.appRole+` NOINHERIT; GRANT `+groupRole+` TO `+l.appRole)
	wantState(t, try(l.app, `SET LOCAL ROLE `+groupRole, `SELECT fencepost.bypass('x')`), "42501")
	wantState(t, try(l.app, `SET LOCAL fencepost.bypass = 'x'`, `SET LOCAL ROLE `+groupRole, write), "ZF004")
	// The control: the same right, inherited.
	fencetest.Exec(
		t,
		l.admin,
		`ALTER ROLE `+l.appRole+` INHERIT; REVOKE `+groupRole+` FROM `+l.appRole+`; GRANT `+groupRole+` TO `+l.appRole,
	)
	if err := try(l.app, `SELECT fencepost.bypass('x')`, write); err != nil {
		t.Errorf("the control: %v", err)
	}
}
