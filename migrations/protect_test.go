package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

func protection(t *testing.T, version int64, p migrations.Protection) *goose.Migration {
	t.Helper()
	m, err := migrations.Protect(version, p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// accountsRule gives each account a resource of its own.
func accountsRule(prefix string) migrations.Protection {
	return migrations.Protection{
		Table: accounts, Namespace: migrations.DefaultNamespace, Prefix: prefix, Columns: []string{"id"},
	}
}

// observedThenEnforced introduces a protection on a table that old programs still write.
func observedThenEnforced(t *testing.T) *migrations.Options {
	t.Helper()
	rule := accountsRule("account:")
	observed, enforced := rule, rule
	observed.Mode = migrations.Observe
	enforced.Before = migrations.Observe
	return &migrations.Options{Also: []*goose.Migration{
		tokenColumn(t, accounts), protection(t, 1001, observed), protection(t, 1002, enforced),
	}}
}

const writeAccount = `UPDATE public.accounts SET balance = 1 WHERE id = 1`

func TestProtectGoesInAndOutByItsModes(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	opts := observedThenEnforced(t)
	up(t, db, opts)
	_, err := db.ExecContext(t.Context(), writeAccount)
	if sqlState(err) != "ZF004" {
		t.Errorf("enforced: %v, want SQLSTATE ZF004", err)
	}
	// The store's default namespace, and its rule, give this resource.
	mustExec(t, db, `DO $$ BEGIN
		PERFORM fencepost.claim('default:account:1', 7, '00000000-0000-0000-0000-000000000001');
		PERFORM fencepost.enter('default:account:1', 7, '00000000-0000-0000-0000-000000000001');
		`+writeAccount+`; END $$`)
	if got := value[int64](t, db, `SELECT last_fencing_token FROM public.accounts WHERE id = 1`); got != 7 {
		t.Errorf("the row was stamped %d, want 7", got)
	}
	for _, step := range []struct {
		to   int64
		mode string
	}{{1001, "observe"}, {1000, ""}} {
		opts.To = step.to
		if _, err := migrations.Down(t.Context(), db, opts); err != nil {
			t.Fatal(err)
		}
		mode := value[string](t, db, `SELECT coalesce((SELECT mode FROM fencepost.protected), '')`)
		if mode != step.mode {
			t.Errorf("down to %d: mode %q, want %q", step.to, mode, step.mode)
		}
		mustExec(t, db, writeAccount)
	}
	if n := value[int](
		t,
		db,
		`SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.accounts'::regclass AND NOT tgisinternal`,
	); n != 0 {
		t.Errorf("%d triggers are left", n)
	}
}

// The functions that create protections cannot be dropped while protections exist.
func TestCase08_DownRefusesWhileATableIsProtected(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	mustExec(
		t,
		db,
		`SELECT fencepost.protect('public.accounts', 'default', 'account:', '{id}')`,
		`CREATE TABLE public.stray (id int)`,
		`CREATE TRIGGER "~fencepost_truncate" BEFORE TRUNCATE ON public.stray
			EXECUTE FUNCTION fencepost.refuse_truncate('enforce')`,
	)
	opts := withColumn(t)
	_, err := migrations.Down(t.Context(), db, opts)
	if !errors.Is(err, migrations.ErrTokensRemain) || sqlState(err) != "ZF003" || !contains(err, "protected") {
		t.Errorf("Down = %v, want ErrTokensRemain", err)
	}
	_, err = db.ExecContext(t.Context(), writeAccount)
	if err == nil {
		t.Error("the protection is open")
	}
	opts.Force = true
	if _, err := migrations.Down(t.Context(), db, opts); err != nil {
		t.Fatalf("forced Down: %v", err)
	}
	wantVersions(t, db)
	mustExec(t, db, writeAccount)
	up(t, db, withColumn(t))
}

func TestProtectRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	opts := withColumn(t)
	nobody := accountsRule("a:")
	nobody.Columns = []string{"nobody"}
	opts.Also = append(opts.Also, protection(t, 1001, nobody))
	_, err := migrations.Up(t.Context(), db, opts)
	if sqlState(err) != "ZF002" || !contains(err, `"public"."accounts"`) || !contains(err, "nobody") {
		t.Errorf("Up = %v, want SQLSTATE ZF002", err)
	}
	wantVersions(t, db, withOwn(t, tokenVersion)...)

	good := accountsRule("a:")
	for name, change := range map[string]func(*migrations.Protection){
		"no table":         func(p *migrations.Protection) { p.Table = migrations.Table{} },
		"empty column":     func(p *migrations.Protection) { p.Columns = []string{""} },
		"64 bytes":         func(p *migrations.Protection) { p.Columns = []string{strings.Repeat("n", 64)} },
		"unknown mode":     func(p *migrations.Protection) { p.Mode = "sometimes" },
		"unknown mode ago": func(p *migrations.Protection) { p.Before = "sometimes" },
		"no name":          func(p *migrations.Protection) { p.Prefix, p.Columns = "", nil },
	} {
		p := good
		change(&p)
		if _, err := migrations.Protect(1001, p); !errors.Is(err, migrations.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := migrations.Protect(0, good); !errors.Is(err, migrations.ErrInvalid) {
		t.Errorf("version 0: %v, want ErrInvalid", err)
	}
}

// In every protocol mode of the driver, with hostile names, in the caller's own provider.
func TestCase27_ProtectWithHostileIdentifiers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63)
	for name, table := range map[string]migrations.Table{
		"spaces and dots": {Schema: "My Schema", Name: "Order.Items", Column: "select"},
		"quotes":          {Schema: `a"b`, Name: `c"".d"`, Column: `"`},
		"63 bytes":        {Schema: long, Name: long, Column: long},
		"injection":       {Schema: `x"; DROP TABLE y; --`, Name: `x"; DROP TABLE y; --`, Column: `x'; DROP TABLE y; --`},
		"dollars":         {Schema: "$body$", Name: "$protection$", Column: "$1"},
		"percent":         {Schema: "%s", Name: "%1$I", Column: "%%"},
		"backslash":       {Schema: `\`, Name: `a\'b`, Column: `\'`},
		"not ASCII":       {Schema: "Müller", Name: "Größe", Column: "トークン"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
				protectHostile(t, mode, table)
			}
		})
	}
}

func protectHostile(t *testing.T, mode string, table migrations.Table) {
	t.Helper()
	db := open(t, withParameter(t, testenv.EmptyDatabase(t), "default_query_exec_mode", mode))
	up(t, db, nil)
	var create, write string
	// The key column is as hostile: the token column's name with another letter.
	key := "k" + strings.TrimSuffix(table.Column, "n")
	err := db.QueryRowContext(t.Context(), `SELECT format('CREATE TABLE public.y (n int); CREATE SCHEMA %1$I;
			CREATE TABLE %1$I.%2$I (%3$I text PRIMARY KEY); INSERT INTO %1$I.%2$I VALUES (''a'')', $1::text, $2::text, $3::text),
		format('UPDATE %1$I.%2$I SET %3$I = %3$I', $1::text, $2::text, $3::text)`,
		table.Schema, table.Name, key).Scan(&create, &write)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, create)
	prefix := `'"%$\:/`
	protection := protection(
		t,
		1001,
		migrations.Protection{Table: table, Namespace: "n", Prefix: prefix, Columns: []string{key}},
	)
	p, err := goose.NewProvider(database.DialectPostgres, db, nil,
		goose.WithGoMigrations(tokenColumn(t, table), protection), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	if _, err := db.ExecContext(t.Context(), write); sqlState(err) != "ZF004" {
		t.Errorf("%s: %v, want SQLSTATE ZF004", mode, err)
	}
	tx := begin(t, db)
	for _, call := range []string{`claim`, `enter`} {
		_, err := tx.ExecContext(
			t.Context(),
			`SELECT fencepost.`+call+`($1::text, 3, '00000000-0000-0000-0000-000000000001')`,
			"n:"+prefix+"a",
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.ExecContext(t.Context(), write); err != nil {
		t.Errorf("%s: with the claim: %v", mode, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := value[int](t, db, `SELECT count(*) FROM fencepost.verify()`); n != 0 {
		t.Errorf("%s: %d problems", mode, n)
	}
	if _, err := p.Down(t.Context()); err != nil {
		t.Errorf("%s: Down: %v", mode, err)
	}
	mustExec(t, db, write)
	if !value[bool](t, db, `SELECT to_regclass('public.y') IS NOT NULL`) {
		t.Errorf("%s: table y was dropped", mode)
	}
}

func TestGrantGivesAndTakesBack(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	name := value[string](t, db, `SELECT current_database()`)
	app, owner, operator, collector := name+` "The App"`, name+" owner", name+" operator", name+" collector"
	for _, role := range []string{app, owner, operator, collector} {
		mustExec(t, db, value[string](t, db, `SELECT format('CREATE ROLE %I', $1::text)`, role))
		t.Cleanup(func() {
			// The test's own context has ended.
			for _, drop := range []string{`DROP OWNED BY `, `DROP ROLE `} {
				if _, err := db.ExecContext(context.Background(), drop+quoted(role)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	m, err := migrations.Grant(1001, migrations.Roles{
		Applications: []string{app}, Owners: []string{owner}, Operators: []string{operator}, Collectors: []string{collector},
	})
	if err != nil {
		t.Fatal(err)
	}
	opts := &migrations.Options{Also: []*goose.Migration{m}}
	rights := func(role string) (functions sql.NullString, tables int) {
		functions = value[sql.NullString](t, db, `SELECT string_agg(p.proname, ',' ORDER BY p.proname) FROM pg_proc AS p
			WHERE p.pronamespace = 'fencepost'::regnamespace AND has_function_privilege($1, p.oid, 'EXECUTE')`, role)
		tables = value[int](t, db, `SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = 'fencepost'::regnamespace
			AND c.relkind IN ('r', 'v') AND has_table_privilege($1, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')`, role)
		return functions, tables
	}
	for range 2 {
		up(t, db, opts)
		const wanted = "begin_incarnation,claim,claim_all,claim_marked,claim_now,draw,draw_marked," +
			"enter,enter_all,enter_marked,guard,mark,once_begin,once_end,once_look,once_purge,protection_rule,settle"
		if functions, tables := rights(app); functions.String != wanted || tables != 1 {
			t.Errorf("the application may call %s, and use %d tables", functions.String, tables)
		}
		if functions, tables := rights(owner); !strings.Contains(functions.String, ",protect,") || tables != 1 ||
			strings.Contains(functions.String, "bypass") || strings.Contains(functions.String, "grant") {
			t.Errorf("the owner may call %s, and use %d tables", functions.String, tables)
		}
		if functions, tables := rights(operator); functions.String != "collectable,verify" || tables != 4 {
			t.Errorf("the operator may call %s, and use %d tables", functions.String, tables)
		}
		if functions, tables := rights(collector); functions.String != "collect,collectable" || tables != 0 {
			t.Errorf("the collector may call %s, and use %d tables", functions.String, tables)
		}
		opts.To = lastOwn(t)
		if _, err := migrations.Down(t.Context(), db, opts); err != nil {
			t.Fatal(err)
		}
		for _, role := range []string{app, owner, operator, collector} {
			if functions, tables := rights(role); functions.Valid || tables != 0 {
				t.Errorf("%s may still call %s, and use %d tables", role, functions.String, tables)
			}
		}
	}
	for _, bad := range []migrations.Roles{
		{Applications: []string{""}},
		{Owners: []string{"a\x00"}},
		{Operators: []string{""}},
	} {
		if _, err := migrations.Grant(1001, bad); !errors.Is(err, migrations.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", bad, err)
		}
	}
	if _, err := migrations.Grant(0, migrations.Roles{}); !errors.Is(err, migrations.ErrInvalid) {
		t.Errorf("version 0: %v, want ErrInvalid", err)
	}
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// If the namespace was left out, every write of a store with another namespace would be refused.
func TestProtectAsksForTheNamespace(t *testing.T) {
	t.Parallel()
	rule := accountsRule("account:")
	rule.Namespace = ""
	if _, err := migrations.Protect(1001, rule); !errors.Is(err, migrations.ErrInvalid) || !contains(err, "namespace") {
		t.Errorf("Protect without a namespace: %v, want ErrInvalid and the word", err)
	}
}
