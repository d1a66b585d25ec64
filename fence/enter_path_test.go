package fence_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
)

// enter, guard, claim_now and the functions *_marked pin no search_path, so their bodies have to name a schema wherever
// a name is looked up. Here every operator on the types it uses, every function and every type that their sources
// mention has a namesake in front of the path.
func TestEnterLooksNothingUpOnTheCallersPath(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	c := fencetest.MustRaise(t, l.app, fencetest.ClaimOf("test:item:1", 5))
	second := fencetest.MustRaise(t, l.app, fencetest.ClaimOf("test:item:2", 7))
	fencetest.Exec(t, l.admin, `CREATE SCHEMA evil AUTHORIZATION `+l.appRole)
	fencetest.Exec(t, l.admin, namesakes)
	conn, err := l.app.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	fencetest.Exec(t, conn, `SET search_path = evil, pg_temp, pg_catalog`)

	// The control: a body that names no schema, with the same rights, calls one of the namesakes.
	fencetest.Exec(
		t,
		l.admin,
		`CREATE FUNCTION app.unqualified(resource text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS
		'BEGIN RETURN resource = '''' OR hashtext(resource) IS NULL; END';
			GRANT EXECUTE ON FUNCTION app.unqualified TO PUBLIC`,
	)
	_, err = conn.Exec(t.Context(), `SELECT app.unqualified('x')`)
	wantState(t, err, "EV001")

	// Both paths of the function: the first entry, and one more. (The caller's own text is the caller's business.)
	enter := func(tx pgx.Tx, c fence.Claim) error {
		_, err := tx.Exec(
			t.Context(),
			`SELECT fencepost.enter($1::pg_catalog.text, $2::pg_catalog.int8, $3::pg_catalog.uuid)`,
			c.Resource,
			int64(c.Token),
			c.Nonce.Hex(),
		)
		return err
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return errors.Join(enter(tx, c), enter(tx, second)) })
	if err != nil {
		t.Errorf("two guards: %v", err)
	}
	for what, sql := range map[string]string{
		"entered":         `enter_marked('test:item:1', 5, '` + c.Nonce.Hex() + `', 1000)`,
		"claimed":         `claim_marked('test:item:1', 6, '` + c.Nonce.Hex() + `', 'x', 1000)`,
		"claimed already": `claim_marked('test:item:2', 7, '` + second.Nonce.Hex() + `', 'x', 1000)`,
		"claimed first":   `claim_marked('test:item:3', 1, '` + c.Nonce.Hex() + `', 'x', 1000)`,
		"drawn":           `draw_marked('test:item:1', '` + c.Nonce.Hex() + `', 'x', 1, 1000)`,
		"drawn first":     `draw_marked('test:item:4', '` + c.Nonce.Hex() + `', 'x', 1, 1000)`,
	} {
		err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			var xid string
			err := tx.QueryRow(t.Context(), `SELECT xid FROM fencepost.`+sql).Scan(&xid)
			return errors.Join(err, tx.Rollback(t.Context()))
		})
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, sql := range map[string]string{
		"claimed":       `claim_now('test:item:2', 8, '` + second.Nonce.Hex() + `', 'x')`,
		"claimed first": `claim_now('test:item:5', 1, '` + c.Nonce.Hex() + `', 'x')`,
	} {
		var claimed bool
		if err := conn.QueryRow(t.Context(), `SELECT claimed FROM fencepost.`+sql).Scan(&claimed); err != nil || !claimed {
			t.Errorf("%s: %v, %v", what, claimed, err)
		}
	}
	stale := c
	stale.Token = 4
	wantState(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return enter(tx, stale) }), "ZF001")
	_, err = conn.Exec(t.Context(), `SELECT fencepost.enter('', 1, NULL)`)
	wantState(t, err, "ZF002")
}

// namesakes fills the schema evil. What cannot be created there (a function with pseudo-types, say) cannot be called by
// mistake either.
const namesakes = `
DO $all$
DECLARE
	used  CONSTANT text[] := '{text,int4,int8,uuid,json,jsonb,bool}';
	trap  CONSTANT text := 'BEGIN RAISE EXCEPTION USING ERRCODE = ''EV001'', MESSAGE = ''a namesake ran''; END';
	body  text := (SELECT string_agg(prosrc, ' ') FROM pg_proc
		WHERE pronamespace = 'fencepost'::regnamespace AND proname IN ('enter', 'guard', 'entered_text', 'enter_marked',
			'claim_now', 'claim_marked', 'draw_marked'));
	one   record;
	made  integer := 0;
BEGIN
	FOR one IN
		SELECT o.oprname, o.oprleft::regtype AS l, o.oprright::regtype AS r FROM pg_operator AS o
		 WHERE o.oprnamespace = 'pg_catalog'::regnamespace
		   AND (SELECT typname FROM pg_type WHERE oid = o.oprleft) = ANY (used)
		   AND (SELECT typname FROM pg_type WHERE oid = o.oprright) = ANY (used)
	LOOP
		made := made + 1;
		EXECUTE format('CREATE FUNCTION evil.op%s(%s, %s) RETURNS boolean LANGUAGE plpgsql AS %L', made, one.l, one.r, trap);
		EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.op%s)',
				one.oprname, one.l, one.r, made);
	END LOOP;
	IF made < 50 THEN
		RAISE EXCEPTION 'only % operators', made;
	END IF;
	made := 0;
	FOR one IN
		SELECT DISTINCT p.proname, pg_get_function_identity_arguments(p.oid) AS args FROM pg_proc AS p
		 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
		   AND p.proname IN (SELECT m[1] FROM regexp_matches(body, '(\w+)\(', 'g') AS m)
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS text LANGUAGE plpgsql AS %L', one.proname, one.args, trap);
			made := made + 1;
		EXCEPTION WHEN invalid_function_definition OR feature_not_supported OR datatype_mismatch THEN
		END;
	END LOOP;
	IF made < 4 THEN
		RAISE EXCEPTION 'only % functions', made;
	END IF;
	FOR one IN SELECT DISTINCT m[1] AS name FROM regexp_matches(body, '(text|int4|int8|uuid|json|jsonb|bool)', 'g') AS m
		LOOP
		EXECUTE format('CREATE DOMAIN evil.%I AS date', one.name);
	END LOOP;
	EXECUTE 'CREATE COLLATION evil."C" (locale = ''POSIX'')';
	GRANT USAGE ON SCHEMA evil TO PUBLIC;
END
$all$`
