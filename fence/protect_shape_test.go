package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// The text of the rule is recorded, so that no release changes it unnoticed.
func TestTheProtectionComputesTheResourceByTheRule(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	fencetest.Exec(t, pool, `CREATE SCHEMA app;
		CREATE DOMAIN app.small AS smallint CHECK (VALUE > -10000);
		CREATE DOMAIN app.smaller AS app.small NOT NULL;
		CREATE DOMAIN app.code AS varchar(20);`)
	for name, c := range map[string]struct {
		columns string // definitions, named as in rule
		rule    []string
		values  string
		want    string
	}{
		"constant":   {`a int`, nil, `1`, "test:p/"},
		"smallint":   {`a smallint NOT NULL`, []string{"a"}, `-7`, "test:p/-7"},
		"integer":    {`a integer NOT NULL`, []string{"a"}, `2147483647`, "test:p/2147483647"},
		"bigint":     {`a bigint NOT NULL`, []string{"a"}, `-9223372036854775808`, "test:p/-9223372036854775808"},
		"identity":   {`a bigint GENERATED ALWAYS AS IDENTITY (START 42)`, []string{"a"}, `DEFAULT`, "test:p/42"},
		"serial":     {`a bigserial NOT NULL`, []string{"a"}, `DEFAULT`, "test:p/1"},
		"text":       {`a text NOT NULL`, []string{"a"}, `'x/y%z é'`, "test:p/x/y%z é"},
		"empty text": {`a text NOT NULL`, []string{"a"}, `''`, "test:p/"},
		"varchar":    {`a varchar(9) NOT NULL`, []string{"a"}, `'x '`, "test:p/x "},
		"uuid": {
			`a uuid NOT NULL`,
			[]string{"a"},
			`'{0A1B2C3D-0000-4000-8000-00000000000F}'`,
			"test:p/0a1b2c3d-0000-4000-8000-00000000000f",
		},
		"domain":         {`a app.code NOT NULL`, []string{"a"}, `'ab'`, "test:p/ab"},
		"domain's":       {`a app.smaller NOT NULL`, []string{"a"}, `5`, "test:p/5"},
		"two":            {`a text NOT NULL, b int NOT NULL`, []string{"a", "b"}, `'x/y%z', 3`, "test:p/x%2Fy%25z/3"},
		"two, turned":    {`a text NOT NULL, b int NOT NULL`, []string{"b", "a"}, `'x/y%z', 3`, "test:p/3/x%2Fy%25z"},
		"parts that mix": {`a text NOT NULL, b text NOT NULL`, []string{"a", "b"}, `'x%2F', '/'`, "test:p/x%252F/%2F"},
		"generated beside": {
			`a int NOT NULL, b int GENERATED ALWAYS AS (a * 2) STORED`,
			[]string{"a"},
			`1, DEFAULT`, "test:p/1",
		},
		"strange names": {`"A b" int NOT NULL, "x""; --" int NOT NULL`, []string{"A b", `x"; --`}, `1, 2`, "test:p/1/2"},
	} {
		fencetest.Exec(
			t,
			pool,
			`DROP TABLE IF EXISTS app.shape;
				CREATE TABLE app.shape (`+c.columns+`, last_fencing_token bigint NOT NULL DEFAULT 0)`,
		)
		protect(t, pool, "app.shape", "p/", c.rule...)
		insert := `INSERT INTO app.shape VALUES (` + c.values + `)`
		_, err := pool.Exec(t.Context(), insert)
		var refused *fence.NotEnteredError
		if err = fence.GuardError(t.Context(), err); !errors.As(err, &refused) || refused.Resource != c.want {
			t.Errorf("%s: %v, want resource %q", name, err, c.want)
			continue
		}
		if c.values == "DEFAULT" {
			c.want = strings.NewReplacer("42", "43", "/1", "/2").Replace(c.want) // the sequence went on
		}
		claim := fencetest.MustRaise(t, pool, fencetest.ClaimOf(c.want, 5))
		if err := under(t.Context(), pool, sends(t.Context(), insert), claim); err != nil {
			t.Errorf("%s: with the claim: %v", name, err)
		}
		fencetest.Exec(t, pool, `TRUNCATE fencepost.fence`) // some names are met twice
	}
}

// A table that cannot be protected is refused with an error that names the reason, and nothing is left behind.
func TestWhatDoesNotFitIsNotProtected(t *testing.T) { //nolint:funlen // a table of cases
	t.Parallel()
	pool := testenv.Pool(t)
	fencetest.Exec(t, pool, `CREATE SCHEMA app;
		CREATE COLLATION app.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw`)
	const token = `, last_fencing_token bigint NOT NULL DEFAULT 0`
	for name, c := range map[string]struct{ create, call, want string }{
		"view":              {`CREATE VIEW app.x AS SELECT 1 AS id`, ``, "it is a view"},
		"materialized view": {`CREATE MATERIALIZED VIEW app.x AS SELECT 1 AS id`, ``, "materialized view"},
		"foreign table": {`CREATE FOREIGN TABLE app.x (id int` + token +
			`) SERVER files OPTIONS (filename '/dev/null')`, ``, "foreign table"},
		"sequence": {`CREATE SEQUENCE app.x`, ``, "no table"},
		"foreign partition": {`CREATE TABLE app.x (id int NOT NULL` + token + `) PARTITION BY LIST (id);
			CREATE FOREIGN TABLE app.y PARTITION OF app.x 
				FOR VALUES IN (1) SERVER files OPTIONS (filename '/dev/null')`, ``, "app.y is a foreign table"},
		"partition": {`CREATE TABLE app.y (id int NOT NULL` + token + `) PARTITION BY LIST (id);
			CREATE TABLE app.x PARTITION OF app.y FOR VALUES IN (1)`, ``, "partition"},
		"heir": {
			`CREATE TABLE app.x (id int NOT NULL` + token + `); CREATE TABLE app.y () INHERITS (app.x)`,
			``, "app.y inherits from it",
		},
		"by the token": {
			`CREATE TABLE app.x (id int NOT NULL` + token + `) PARTITION BY LIST (last_fencing_token)`,
			``, "partitioned by its token",
		},
		"no token": {`CREATE TABLE app.x (id int NOT NULL)`, ``, "no token column last_fencing_token"},
		"nullable token": {
			`CREATE TABLE app.x (id int NOT NULL, last_fencing_token bigint)`, ``,
			"last_fencing_token may be NULL",
		},
		"integer token": {
			`CREATE TABLE app.x (id int NOT NULL, last_fencing_token int NOT NULL)`,
			``, "is integer, not bigint",
		},
		"generated token": {`CREATE TABLE app.x (id int NOT NULL,
			last_fencing_token bigint NOT NULL GENERATED ALWAYS AS (1) STORED)`, ``, "generated"},
		"identity token": {`CREATE TABLE app.x (id int NOT NULL,
			last_fencing_token bigint GENERATED BY DEFAULT AS IDENTITY)`, ``, "generated"},
		"other token": {`CREATE TABLE app.x (id int NOT NULL` + token +
			`)`, `'test', 'p', '{id}', 'mine'`, "no token column mine"},
		"no column":       {`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'test', 'p', '{ID}'`, `no column "ID"`},
		"system column":   {`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'test', 'p', '{ctid}'`, `no column ctid`},
		"nullable column": {`CREATE TABLE app.x (id int` + token + `)`, ``, "id of the resource may be NULL"},
		"numeric column":  {`CREATE TABLE app.x (id numeric NOT NULL` + token + `)`, ``, "is numeric"},
		"char column":     {`CREATE TABLE app.x (id char(5) NOT NULL` + token + `)`, ``, "is character(5)"},
		"array column":    {`CREATE TABLE app.x (id int[] NOT NULL` + token + `)`, ``, "is integer[]"},
		"time column":     {`CREATE TABLE app.x (id timestamptz NOT NULL` + token + `)`, ``, "is timestamp with time zone"},
		"loose collation": {`CREATE TABLE app.x (id text COLLATE app.loose NOT NULL` + token + `)`, ``, "collation"},
		"generated column": {`CREATE TABLE app.x (a int, id int NOT NULL GENERATED ALWAYS AS (1) STORED` +
			token + `)`, ``, "generated"},
		"token as resource": {`CREATE TABLE app.x (id int NOT NULL` + token +
			`)`, `'test', 'p', '{last_fencing_token}'`, "token and resource"},
		"column twice": {`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'test', 'p', '{id,id}'`, "twice"},
		"unknown mode": {
			`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'test', 'p', '{id}', mode => 'off'`,
			"neither enforce nor observe",
		},
		"namespace": {`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'a:b', 'p', '{id}'`, "namespace"},
		"no name":   {`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'test', ''`, "needs a name"},
		"a NULL":    {`CREATE TABLE app.x (id int NOT NULL` + token + `)`, `'test', NULL`, "NULL"},
		"a later trigger": {`CREATE TABLE app.x (id int NOT NULL` + token + `); CREATE TRIGGER "é" BEFORE INSERT ON app.x
			FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`, ``, `"é" fires after`},
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			fencetest.Exec(t, tx, c.create)
			if c.call == "" {
				c.call = `'test', 'p', '{id}'`
			}
			return sends(t.Context(), `SELECT fencepost.protect('app.x', `+c.call+`)`)(tx)
		})
		if sqlState(err) != "ZF002" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ZF002 that says %q", name, err, c.want)
		}
	}
	for _, table := range []string{"fencepost.fence", "fencepost.protected", "pg_catalog.pg_class"} {
		_, err := pool.Exec(t.Context(), `SELECT fencepost.protect($1::text::regclass, 'test', 'p')`, table)
		wantState(t, err, "ZF002")
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		fencetest.Exec(t, tx, `CREATE TEMP TABLE mine (id int NOT NULL`+token+`)`)
		return sends(t.Context(), `SELECT fencepost.protect('mine', 'test', 'p')`)(tx)
	})
	wantState(t, err, "ZF002")
	wantNoProblems(t, pool)
}

// Child tables first, then the table that they inherit from: a write to the parent reaches them through their own
// protections.
func TestInheritance(t *testing.T) {
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `CREATE TABLE app.heir () INHERITS (app.item); INSERT INTO app.heir (id) VALUES (7)`)
	protect(t, pool, "app.heir", "item:", "id")
	protect(t, pool, "app.item", "item:", "id")
	wantNoProblems(t, pool)
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 1))
	wantState(
		t,
		under(t.Context(), pool, sends(t.Context(), `UPDATE app.item SET value = 'x' WHERE id IN (1, 7)`), c),
		"ZF004",
	)
	fencetest.Exec(t, pool, `SELECT fencepost.unprotect('app.heir')`)
	wantProblem(t, pool, fence.ProblemTable, "app.item")
}

// A column is added while sessions have the trigger compiled.
func TestAColumnAddedUnderOpenConnections(t *testing.T) {
	t.Parallel()
	pool := protected(t)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	c := fencetest.MustRaise(t, pool, fencetest.ClaimOf("test:item:1", 1))
	for _, alter := range []string{
		`SELECT`, `ALTER TABLE app.item ADD COLUMN more text`,
		`ALTER TABLE app.item DROP COLUMN updated_at`,
	} {
		fencetest.Exec(t, pool, alter)
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if err := fence.Enter(t.Context(), tx, c); err != nil {
				return err
			}
			return sends(t.Context(), `UPDATE app.item SET value = value || 'x' WHERE id = 1`)(tx)
		})
		if err != nil {
			t.Errorf("%s: %v", alter, err)
		}
	}
	wantNoProblems(t, pool)
}

// Under row security the protection sees only the rows that the policy allows.
func TestTheProtectionUnderRowSecurity(t *testing.T) {
	t.Parallel()
	l := deploy(t)
	fencetest.Exec(t, l.owner, `ALTER TABLE app.item ENABLE ROW LEVEL SECURITY;
		CREATE POLICY odd ON app.item USING (id % 2 = 1)`)
	one, two := fencetest.MustRaise(
		t,
		l.app,
		fencetest.ClaimOf("test:item:1", 1),
	), fencetest.MustRaise(
		t,
		l.app,
		fencetest.ClaimOf("test:item:2", 1),
	)
	if err := under(t.Context(), l.app, sends(t.Context(), `UPDATE app.item SET value = 'x'`), one); err != nil {
		t.Error(err)
	}
	if err := under(
		t.Context(),
		l.app,
		sends(t.Context(), `UPDATE app.item SET value = 'y' WHERE id = 2`),
		two,
	); err != nil {
		t.Error(err)
	}
	if a, b := fencetest.Read(t, l.admin, 1), fencetest.Read(t, l.admin, 2); a.Value != "x" || b.Value != "" {
		t.Errorf("rows %+v, %+v", a, b)
	}
	_, err := l.app.Exec(t.Context(), `UPDATE app.item SET value = 'z'`)
	wantState(t, err, "ZF004")
}
