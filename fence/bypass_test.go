package fence_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// borrowed is a deployment in which the application, which may write app.item and has no right to bypass, leaves code
// of its own where others come by: each way in is a statement of an operator's, and the application's function runs
// within it.
type borrowed struct {
	layout
	operatorRole string
	operator     *pgxpool.Pool
}

// waysIn are ordinary statements of an operator or a superuser that make PostgreSQL run evil.attack.
var waysIn = map[string]struct {
	prepare   string // by the application
	superuser bool   // whether the statements are a superuser's rather than an operator's
	before    string // by a superuser
	do        []string
}{
	"ANALYZE": {
		prepare: `CREATE INDEX ON evil.t (evil.attack(id))`, superuser: true, do: []string{`ANALYZE evil.t`},
	},
	"REINDEX": {
		prepare: `CREATE INDEX ON evil.t (evil.attack(id))`, superuser: true, do: []string{`REINDEX TABLE evil.t`},
	},
	"materialized view": {
		prepare:   `CREATE MATERIALIZED VIEW evil.m AS SELECT evil.attack(id) FROM evil.t WITH NO DATA`,
		superuser: true, do: []string{`REFRESH MATERIALIZED VIEW evil.m`},
	},
	"trigger": {
		prepare: `CREATE TRIGGER t BEFORE INSERT ON evil.t FOR EACH ROW EXECUTE FUNCTION evil.trigger()`,
		do:      []string{`INSERT INTO evil.t VALUES (2)`},
	},
	"deferred trigger": {
		prepare: `CREATE CONSTRAINT TRIGGER t AFTER INSERT ON evil.t DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION evil.trigger()`,
		do: []string{`INSERT INTO evil.t VALUES (2)`, `COMMIT`},
	},
	"event trigger": {
		before: `CREATE EVENT TRIGGER evil ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION evil.event()`,
		do:     []string{`CREATE TEMP TABLE mine ()`},
	},
	"policy": {
		prepare: `ALTER TABLE evil.t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON evil.t USING (evil.attack(id) = 1)`,
		do:      []string{`SELECT * FROM evil.t`},
	},
	"default": {
		prepare: `ALTER TABLE evil.t ADD more int; ALTER TABLE evil.t ALTER more SET DEFAULT evil.attack(1)`,
		do:      []string{`INSERT INTO evil.t VALUES (2)`},
	},
	"generated column": {
		prepare: `CREATE TABLE evil.g (id int, more int GENERATED ALWAYS AS (evil.attack(id)) STORED);
			GRANT ALL ON evil.g TO PUBLIC`,
		do: []string{`INSERT INTO evil.g VALUES (2)`},
	},
	"check": {
		prepare: `ALTER TABLE evil.t ADD CHECK (evil.attack(id) = 1) NOT VALID`,
		do:      []string{`INSERT INTO evil.t VALUES (2)`},
	},
	"view": {
		prepare: `CREATE VIEW evil.v AS SELECT evil.attack(1); GRANT ALL ON evil.v TO PUBLIC`,
		do:      []string{`SELECT * FROM evil.v`},
	},
	"function": {do: []string{`SELECT evil.attack(1)`}},
	"block":    {do: []string{`DO 'BEGIN PERFORM evil.attack(1); END'`}},
}

func borrow(t *testing.T) borrowed {
	t.Helper()
	b := borrowed{layout: deploy(t)}
	b.operatorRole, b.operator = logIn(t, b.admin, "operator")
	fencetest.Exec(
		t,
		b.admin,
		`GRANT USAGE ON SCHEMA fencepost, app TO `+b.operatorRole+`; GRANT ALL ON app.item TO `+b.operatorRole+`;
		GRANT EXECUTE ON FUNCTION fencepost.bypass(text), fencepost.bypass(text, text[]) TO `+b.operatorRole+`;
		CREATE SCHEMA evil AUTHORIZATION `+b.appRole,
	)
	fencetest.Exec(
		t,
		b.app,
		`GRANT USAGE ON SCHEMA evil TO PUBLIC; CREATE TABLE evil.t (id int); INSERT INTO evil.t VALUES (1);
			GRANT ALL ON evil.t TO PUBLIC;
		CREATE FUNCTION evil.attack(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END';
		CREATE FUNCTION evil.trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM evil.attack(1); RETURN NEW; END';
		CREATE FUNCTION evil.event() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM evil.attack(1); END'`,
	)
	return b
}

// arm makes evil.attack do something first, and then write.
func (b borrowed) arm(t *testing.T, first string) {
	t.Helper()
	fencetest.Exec(t, b.app, `CREATE OR REPLACE FUNCTION evil.attack(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
		BEGIN EXECUTE 'SELECT evil.write()'; RETURN 1; END $$;
		CREATE OR REPLACE FUNCTION evil.write() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN `+first+`; UPDATE app.item SET value = 'evil' WHERE id = 1; END $$`)
}

// runAll runs statements in one transaction and returns its first error.
func runAll(ctx context.Context, pool *pgxpool.Pool, statements ...string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// Code that runs in another user's session has none of that session's rights to bypass, whatever makes it run, and
// whether it sets the setting to a new value, to one that was valid in another transaction, or calls the function.
func TestCase34_CodeInAnotherSessionDoesNotPassTheProtection(t *testing.T) {
	t.Parallel()
	for name, way := range waysIn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := borrow(t)
			if way.prepare != "" {
				fencetest.Exec(t, b.app, way.prepare)
			}
			if way.before != "" {
				fencetest.Exec(t, b.admin, way.before)
			}
			victim := b.operator
			if way.superuser {
				victim = b.admin
			}
			for _, first := range []string{
				`PERFORM set_config('fencepost.bypass', 'x', true)`,
				`PERFORM set_config('fencepost.bypass', 'x', false)`,
				`PERFORM set_config('fencepost.bypass', ` + literal(usedProof(t, victim)) + `, true)`,
				`PERFORM fencepost.bypass('x')`,
				`PERFORM fencepost.bypass('x', 'app.item')`,
				`SET LOCAL fencepost.bypass = 'x'`,
			} {
				b.arm(t, first)
				if state := sqlState(runAll(t.Context(), victim, way.do...)); state != "ZF004" && state != "42501" {
					t.Errorf("%s: SQLSTATE %q, want ZF004 or 42501", first, state)
				}
				if got := fencetest.Read(t, b.admin, 1); got.Value != "" {
					t.Fatalf("%s: the row is %+v", first, got)
				}
			}
		})
	}
}

// usedProof returns what fencepost.bypass was set to in a transaction that has ended.
func usedProof(t *testing.T, pool *pgxpool.Pool) (proof string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT fencepost.bypass('x')`); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `SELECT current_setting('fencepost.bypass')`).Scan(&proof)
	})
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// The control: an authority that rests on who logged in is borrowed by the expression of an index, and a call that need
// not be the client's own statement is made by a trigger.
func TestCase34Control_AuthorityThatCanBeBorrowed(t *testing.T) {
	t.Parallel()
	b := borrow(t)
	fencetest.Exec(t, b.app, waysIn["ANALYZE"].prepare)
	replaceFunction(
		t,
		b.admin,
		"bypass_reason(oid)",
		`said = fencepost.bypass_proof(scope, reason) AND fencepost.may_bypass(scope)`,
		`has_function_privilege(session_user, 'fencepost.bypass(text)', 'EXECUTE')`,
	)
	replaceFunction(t, b.admin, "bypass_reason(oid)", `scope = 'all'`, `true`)
	b.arm(t, `PERFORM set_config('fencepost.bypass', 'x', true)`)
	if err := runAll(t.Context(), b.admin, `ANALYZE evil.t`); err != nil || fencetest.Read(t, b.admin, 1).Value != "evil" {
		t.Errorf("session_user: %v", err)
	}

	b = borrow(t)
	fencetest.Exec(t, b.app, waysIn["trigger"].prepare)
	replaceFunction(t, b.admin, "begin_bypass(text,text)", `pg_trigger_depth() > 0`, `false`)
	replaceFunction(
		t,
		b.admin,
		"begin_bypass(text,text)",
		` OR called IS NULL OR called ~ '"' AND called <> lower(called)`,
		``,
	)
	b.arm(t, `PERFORM fencepost.bypass('x')`)
	if err := runAll(
		t.Context(),
		b.operator,
		`INSERT INTO evil.t VALUES (2)`,
	); err != nil ||
		fencetest.Read(t, b.admin, 1).Value != "evil" {
		t.Errorf("any statement: %v", err)
	}
}

// What counts as the client's own call.
func TestCase34_BypassIsAStatementOfItsOwn(t *testing.T) {
	t.Parallel()
	b := borrow(t)
	fencetest.Exec(t, b.operator, `CREATE TEMP TABLE x (y text)`) // a connection that has seen the operator at work
	fencetest.Exec(t, b.admin, `CREATE SCHEMA "FencePost"; GRANT USAGE ON SCHEMA "FencePost" TO PUBLIC`)
	for _, other := range []string{
		`"FencePost".bypass`, `"FencePost"."Bypass"`, `public."fencepost.bypass"`,
		`public."fencepost . bypass"`,
	} {
		fencetest.Exec(
			t,
			b.admin,
			`CREATE FUNCTION `+other+`(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM fencepost.bypass('x'); END $$`,
		)
	}
	const write = `UPDATE app.item SET value = 'fixed' WHERE id = 1`
	for _, call := range []string{
		`SELECT fencepost.bypass('ticket 17')`, `SELECT FencePost.BYPASS('ticket 17')`,
		` select "fencepost" . bypass ( 'it''s; SELECT x' :: text , 'app.item' ) ; `,
		"-- why\n/* ticket */ SELECT * FROM fencepost.bypass('x', 'app.item', 'evil.t') /* by hand */",
	} {
		if err := runAll(t.Context(), b.operator, call, write); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		pool := inMode(t, b.operator, mode)
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT fencepost.bypass($1, $2)`, "it's", "app.item"); err != nil {
				return err
			}
			return sends(t.Context(), write)(tx)
		})
		if err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		pool.Close()
	}
	for _, call := range []string{
		`SELECT fencepost.bypass('x'); SELECT evil.attack(1)`,
		`SELECT fencepost.bypass('x'), evil.attack(1)`,
		`SELECT fencepost.bypass('x') FROM evil.t`,
		`SELECT fencepost.bypass('x' || evil.attack(1))`,
		`SELECT fencepost.bypass('x\' || evil.attack(1) || '\')`,
		`WITH x AS (SELECT fencepost.bypass('x')) SELECT * FROM x`,
		`DO $$ BEGIN PERFORM fencepost.bypass('x'); END $$`,
		`PREPARE p AS SELECT fencepost.bypass('x'); EXECUTE p`,
		"--\rSELECT evil.attack(1);\nSELECT fencepost.bypass('x')",
		// Names that only look alike: whatever they call makes the call.
		`SELECT "FencePost".bypass('x')`, `SELECT "FencePost"."Bypass"('x')`, `SELECT "fencepost.bypass"('x')`,
		`SELECT "fencepost . bypass"('x')`,
	} {
		wantState(t, runAll(t.Context(), b.operator, call), "42501")
	}
	for call, want := range map[string]string{
		`SELECT fencepost.bypass('x', 'app.missing')`: "ZF002", `SELECT fencepost.bypass('x', 'item')`: "ZF002",
		`SELECT fencepost.bypass('')`: "ZF002", `SELECT fencepost.bypass(' ', 'app.item')`: "ZF002",
		`SELECT fencepost.bypass('x', VARIADIC '{}')`: "42501",
	} {
		wantState(t, runAll(t.Context(), b.operator, call), want)
	}
}

// In a transaction with a bypass, other code passes only the named protections. The rollback of a savepoint undoes the
// bypass, and a name of another user is another user.
func TestCase34_AWayThroughLeadsNoFurther(t *testing.T) {
	t.Parallel()
	b := borrow(t)
	fencetest.Exec(t, b.owner, createOther+`; GRANT ALL ON app.other TO `+b.operatorRole)
	protect(t, b.owner, "app.other", "other:", "id")
	fencetest.Exec(
		t,
		b.owner,
		createLog[len(`CREATE SCHEMA app;`):]+`; GRANT ALL ON app.log, app.log_1, app.log_2, app.log_2a TO `+b.operatorRole,
	)
	protect(t, b.owner, "app.log", "log:", "id")
	const (
		item, other = `UPDATE app.item SET value = 'x' WHERE id = 1`,
			`INSERT INTO app.other (id) SELECT count(*) FROM app.other`
		named = `SELECT fencepost.bypass('x', 'app.item')`
	)
	for name, c := range map[string]struct {
		want       string
		statements []string
	}{
		"named":           {"", []string{named, item}},
		"another":         {"ZF004", []string{named, other}},
		"another's added": {"", []string{named, `SELECT fencepost.bypass('y', 'app.other')`, item, other}},
		"all":             {"", []string{`SELECT fencepost.bypass('x')`, item, other}},
		"named after all": {"", []string{`SELECT fencepost.bypass('x')`, named, item, other}},
		"parts": {"", []string{
			`SELECT fencepost.bypass('x', 'app.log')`, `UPDATE app.log SET value = 'x'`,
			`UPDATE app.log_2a SET value = 'x'`, `TRUNCATE app.log_1`,
		}},
		"a part": {"ZF004", []string{
			`SELECT fencepost.bypass('x', 'app.log_1')`,
			`UPDATE app.log_1 SET value = 'x'`, `UPDATE app.log_2a SET value = 'x'`,
		}},
		"savepoint":       {"ZF004", []string{`SAVEPOINT s`, named, `ROLLBACK TO s`, item}},
		"later savepoint": {"", []string{named, `SAVEPOINT s`, item, `ROLLBACK TO s`, item}},
		"widened by hand": {
			"ZF004",
			[]string{
				named,
				`SELECT set_config('fencepost.bypass',
				regexp_replace(current_setting('fencepost.bypass'), ' [0-9]+ ', ' all '), true)`, other,
			},
		},
		"another reason": {
			"ZF004",
			[]string{named, `SELECT set_config('fencepost.bypass', current_setting('fencepost.bypass') || 'y', true)`, item},
		},
		"next transaction": {"ZF004", []string{item}},
		"twice":            {"", []string{named, named, item}},
		"set to nothing":   {"ZF004", []string{named, `SET LOCAL fencepost.bypass = ''`, item}},
		"discarded":        {"ZF004", []string{named, `RESET ALL`, item}},
		"cut off by a hair": {
			"ZF004",
			[]string{named, `SELECT set_config('fencepost.bypass', left(current_setting('fencepost.bypass'), 64), true)`, item},
		},
	} {
		err := runAll(t.Context(), b.operator, c.statements...)
		if got := sqlState(err); got != c.want || c.want == "" && err != nil {
			t.Errorf("%s: SQLSTATE %q, want %q: %v", name, got, c.want, err)
		}
	}
	// A right to one form of bypass does not include the other form.
	fencetest.Exec(t, b.admin, `REVOKE EXECUTE ON FUNCTION fencepost.bypass(text) FROM `+b.operatorRole)
	wantState(t, runAll(t.Context(), b.operator, `SELECT fencepost.bypass('x')`), "42501")
	if err := runAll(t.Context(), b.operator, named, item); err != nil {
		t.Error(err)
	}
}

// Without a secret there is no proof, and NULL equals nothing.
func TestCase34_WithoutASecretNothingOpens(t *testing.T) {
	t.Parallel()
	b := borrow(t)
	fencetest.Exec(t, b.admin, `TRUNCATE fencepost.secret`)
	wantState(t, runAll(t.Context(), b.operator, `SELECT fencepost.bypass('x')`), "55000")
	for _, forged := range []string{"x", " all ", " all x", "", "NULL"} {
		err := runAll(
			t.Context(),
			b.operator,
			`SET LOCAL fencepost.bypass = `+literal(forged),
			`UPDATE app.item SET value = 'x'`,
		)
		wantState(t, err, "ZF004")
	}
}

// A grant to PUBLIC names no role, so nobody may bypass by it, including roles that are named beside it: a grant by
// name on a function without an ACL, such as a dump without privileges leaves, also writes one to PUBLIC.
func TestCase35_WhatEverybodyMayCallOpensNothing(t *testing.T) {
	t.Parallel()
	b := borrow(t)
	const call, write = `SELECT fencepost.bypass('x')`, `UPDATE app.item SET value = 'x' WHERE id = 1`
	for _, to := range []string{"PUBLIC", b.appRole} {
		fencetest.Exec(t, b.admin, `GRANT EXECUTE ON FUNCTION fencepost.bypass(text) TO `+to)
		want := "42501"
		if to != "PUBLIC" {
			want = "" // the control: named, and nobody else beside
		}
		wantState(t, runAll(t.Context(), b.app, call, write), want)
		wantState(t, runAll(t.Context(), b.operator, call, write), want)
		fencetest.Exec(t, b.admin, `REVOKE EXECUTE ON FUNCTION fencepost.bypass(text) FROM PUBLIC`)
	}
}

func literal(s string) string { return `'` + s + `'` }
