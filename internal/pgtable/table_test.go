package pgtable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/fencetest"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// C27: names are used by their parts, whatever characters are in them, and the right table's row changes.
func TestCase27_HostileNames(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	long := strings.Repeat("n", 63)
	for i, c := range []struct{ schema, name, key, column, tok string }{
		{"My Schema", "Order.Items", "Id", "select", "Last Token"},
		{`quo"te`, `ta"ble`, `k"ey`, `c"ol`, `to"ken`},
		{long, long, long, strings.Repeat("c", 63), strings.Repeat("t", 63)},
		{"app.orders", "a.b", "a.b", "c.d", "e.f"},
		{`x"; DROP TABLE y; --`, `x'; DROP TABLE y; --`, "id", "value", "last_fencing_token"},
		{"é", "e\u0301", "$1", "%s", "?"},
	} {
		quoted := func(parts ...string) string { return pgx.Identifier(parts).Sanitize() }
		decoy := fmt.Sprintf("decoy %d", i)
		for _, schema := range []string{c.schema, decoy} {
			fencetest.Exec(t, pool, fmt.Sprintf(`CREATE SCHEMA %s`, quoted(schema)))
			fencetest.Exec(t, pool, fmt.Sprintf(`CREATE TABLE %s (%s text PRIMARY KEY, %s text, %s bigint NOT NULL DEFAULT 0)`,
				quoted(schema, c.name), quoted(c.key), quoted(c.column), quoted(c.tok)))
			fencetest.Exec(t, pool, fmt.Sprintf(`INSERT INTO %s VALUES ('k', 'before')`, quoted(schema, c.name)))
		}
		table := pgtable.Table{Schema: c.schema, Name: c.name, Key: []string{c.key}, Token: c.tok}
		columns, err := pgtable.Inspect(t.Context(), pool, table)
		if err != nil || len(columns) != 3 {
			t.Errorf("%+v: columns %+v, %v", c, columns, err)
		}
		if err := pgrow.Update(t.Context(), pool, table, 5, pgtable.Key{"k"}, pgtable.Set{c.column: "after"}); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		fencetest.WantErr(
			t,
			pgrow.Update(t.Context(), pool, table, 5, pgtable.Key{"k"}, pgtable.Set{c.column: "again"}),
			pgerr.ErrTokenSpent,
		)
		for schema, want := range map[string]string{c.schema: "after", decoy: "before"} {
			var got string
			err := pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT %s FROM %s`, quoted(c.column), quoted(schema, c.name))).
				Scan(&got)
			if err != nil || got != want {
				t.Errorf("%s.%s holds %q, %v", schema, c.name, got, err)
			}
		}
	}
}

func TestNamesThatCannotBeAreRefusedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	pool := testenv.Pool(t)
	bad := []string{"", strings.Repeat("x", 64), strings.Repeat("é", 32), "a\x00b", "\xff"}
	for _, name := range bad {
		for field, table := range map[string]pgtable.Table{
			"schema": {Schema: name, Name: "t", Key: []string{"id"}},
			"name":   {Schema: "s", Name: name, Key: []string{"id"}},
			"key":    {Schema: "s", Name: "t", Key: []string{name}},
		} {
			if err := pgrow.Update(
				t.Context(),
				pool,
				table,
				1,
				pgtable.Key{1},
				pgtable.Set{"v": 1},
			); !errors.Is(
				err,
				pgerr.ErrInvalid,
			) {
				t.Errorf("%s %q: %v", field, name, err)
			}
		}
		err := pgrow.Update(t.Context(), pool, fencetest.Rows, 1, pgtable.Key{1}, pgtable.Set{name: 1})
		fencetest.WantErr(t, err, pgerr.ErrInvalid)
	}
	for what, err := range map[string]error{
		"no key": pgrow.Update(t.Context(), pool, pgtable.Table{Schema: "s", Name: "t"}, 1, nil, pgtable.Set{"v": 1}),
		"key named twice": pgrow.Update(t.Context(), pool,
			pgtable.Table{Schema: "s", Name: "t", Key: []string{"a", "a"}}, 1, pgtable.Key{1, 2}, nil),
		"token in the key": pgrow.Update(t.Context(), pool,
			pgtable.Table{Schema: "s", Name: "t", Key: []string{"last_fencing_token"}}, 1, pgtable.Key{1}, nil),
		"too few key values": pgrow.Update(t.Context(), pool, fencetest.Rows, 1, nil, pgtable.Set{"value": 1}),
		"token column written": pgrow.Update(t.Context(), pool, fencetest.Rows, 1, pgtable.Key{1},
			pgtable.Set{"last_fencing_token": 0}),
	} {
		if !errors.Is(err, pgerr.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Registration names what is wrong.
func TestInspectNamesWhatIsWrong(t *testing.T) { //nolint:funlen // a table of cases
	t.Parallel()
	pool := fencetest.Setup(t)
	fencetest.Exec(t, pool, `
		CREATE TABLE app.no_token (id bigint PRIMARY KEY);
		CREATE TABLE app.int_token (id bigint PRIMARY KEY, last_fencing_token integer NOT NULL DEFAULT 0);
		CREATE TABLE app.numeric_token (id bigint PRIMARY KEY, last_fencing_token numeric(20) NOT NULL DEFAULT 0);
		CREATE TABLE app.null_token (id bigint PRIMARY KEY, last_fencing_token bigint DEFAULT 0);
		CREATE TABLE app.no_key (id bigint NOT NULL, last_fencing_token bigint NOT NULL);
		CREATE TABLE app.null_key (id bigint UNIQUE, last_fencing_token bigint NOT NULL);
		CREATE TABLE app.partial_key (id bigint NOT NULL, last_fencing_token bigint NOT NULL);
		CREATE UNIQUE INDEX ON app.partial_key (id) WHERE id > 0;
		CREATE TABLE app.late_key (id bigint PRIMARY KEY DEFERRABLE, last_fencing_token bigint NOT NULL);
		CREATE TABLE app.wide_key (id bigint, part bigint, last_fencing_token bigint NOT NULL, PRIMARY KEY (id, part));
		CREATE TABLE app.covering (id bigint NOT NULL, part bigint, last_fencing_token bigint NOT NULL,
			UNIQUE (id) INCLUDE (part));
		CREATE TABLE app.deferred_key (id bigint NOT NULL UNIQUE DEFERRABLE, last_fencing_token bigint NOT NULL);
		CREATE TABLE app.expression_key (id text NOT NULL, last_fencing_token bigint NOT NULL);
		CREATE UNIQUE INDEX ON app.expression_key (lower(id));
		CREATE TABLE app.generated_token (id bigint PRIMARY KEY,
			last_fencing_token bigint NOT NULL GENERATED ALWAYS AS (id) STORED);
		CREATE TABLE app.identity_token (id bigint PRIMARY KEY, last_fencing_token bigint GENERATED BY DEFAULT AS IDENTITY);
		CREATE TABLE app.generated_key (n bigint, id bigint GENERATED ALWAYS AS (n + 1) STORED PRIMARY KEY,
			last_fencing_token bigint NOT NULL);
		CREATE DOMAIN app.number AS bigint NOT NULL;
		CREATE TABLE app.domain_token (id bigint PRIMARY KEY, last_fencing_token app.number);
		CREATE TABLE app.domain_good (id bigint PRIMARY KEY, last_fencing_token app.number NOT NULL DEFAULT 0);
		CREATE TABLE app.parent (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL);
		CREATE TABLE app.child () INHERITS (app.parent);
		CREATE MATERIALIZED VIEW app.seen AS SELECT * FROM app.item;
		CREATE FOREIGN DATA WRAPPER nobody;
		CREATE SERVER nowhere FOREIGN DATA WRAPPER nobody;
		CREATE FOREIGN TABLE app.foreign_table (id bigint, last_fencing_token bigint) SERVER nowhere;
		CREATE SEQUENCE app.numbers;
		CREATE VIEW app.view AS SELECT * FROM app.item`)
	table := func(name string, key ...string) pgtable.Table {
		return pgtable.Table{Schema: "app", Name: name, Key: key}
	}
	for _, good := range []pgtable.Table{
		fencetest.Rows, table("covering", "id"), table("wide_key", "part", "id"),
		table("domain_good", "id"),
	} {
		if _, err := pgtable.Inspect(t.Context(), pool, good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for problem, bad := range map[string]pgtable.Table{
		"no such table":                            table("missing", "id"),
		`no token column "last_fencing_token"`:     table("no_token", "id"),
		"is integer, not bigint":                   table("int_token", "id"),
		"is numeric(20,0), not bigint":             table("numeric_token", "id"),
		`"last_fencing_token" may be NULL`:         table("null_token", "id"),
		`over exactly ["id"]`:                      table("no_key", "id"),
		`key column "id" may be NULL`:              table("null_key", "id"),
		"no primary key and no total unique":       table("partial_key", "id"),
		"no primary key and no total unique index": table("late_key", "id"),
		`over exactly ["part"]`:                    table("wide_key", "part"),
		`no key column "ID"`:                       table("item", "ID"),
		"unique index over exactly [\"id\"]":       table("deferred_key", "id"),
		"no total unique index":                    table("expression_key", "id"),
		"is generated, and cannot be stamped":      table("generated_token", "id"),
		"is an identity":                           table("identity_token", "id"),
		`key column "id" is generated`:             table("generated_key", "id"),
		`token" may be NULL, and NULL`:             table("domain_token", "id"),
		"other tables inherit from it":             table("parent", "id"),
		"it is a materialized view, not a table":   table("seen", "id"),
		"it is a foreign table, not a table":       table("foreign_table", "id"),
		"it is a sequence, not a table":            table("numbers", "id"),
		"it is a view, not a table":                table("view", "id"),
	} {
		_, err := pgtable.Inspect(t.Context(), pool, bad)
		fencetest.WantErr(t, err, pgerr.ErrTable)
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: got %v, want it to say %q", bad, err, problem)
		}
	}
}

// A temporary table belongs to one session, under whichever name its schema has.
func TestInspectRefusesTemporaryTables(t *testing.T) {
	t.Parallel()
	conn, err := fencetest.Setup(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	fencetest.Exec(
		t,
		conn.Conn(),
		`CREATE TEMPORARY TABLE item (id bigint PRIMARY KEY, last_fencing_token bigint NOT NULL)`,
	)
	var schema string
	if err := conn.QueryRow(t.Context(), `SELECT pg_my_temp_schema()::regnamespace::text`).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	for schema, problem := range map[string]string{schema: "it is temporary", "pg_temp": "no such table", "": ""} {
		_, err := pgtable.Inspect(t.Context(), conn, pgtable.Table{Schema: schema, Name: "item", Key: []string{"id"}})
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("schema %q: got %v, want it to say %q", schema, err, problem)
		}
	}
}

// A missing privilege is named.
func TestInspectNamesMissingPrivileges(t *testing.T) {
	t.Parallel()
	owner := fencetest.Setup(t)
	pool := fencetest.AsRole(t, owner, "")
	role := pgx.Identifier{owner.Config().ConnConfig.Database + "_worker"}.Sanitize()
	for _, step := range []struct{ problem, then string }{
		{`SELECT on token column "last_fencing_token"`, `GRANT SELECT (last_fencing_token) ON app.item TO `},
		{`UPDATE on token column "last_fencing_token"`, `GRANT UPDATE (last_fencing_token) ON app.item TO `},
		{`SELECT on key column "id"`, `GRANT SELECT (id) ON app.item TO `},
		{"", `REVOKE USAGE ON SCHEMA app FROM `},
		{`USAGE on schema "app"`, `GRANT USAGE ON SCHEMA app TO `},
	} {
		_, err := pgtable.Inspect(t.Context(), pool, fencetest.Rows)
		if step.problem == "" && err != nil {
			t.Error(err)
		}
		if step.problem != "" &&
			(!errors.Is(err, pgerr.ErrTable) || !strings.Contains(err.Error(), "no privilege: "+step.problem)) {
			t.Errorf("got %v, want it to say %q", err, step.problem)
		}
		fencetest.Exec(t, owner, step.then+role)
	}
}
