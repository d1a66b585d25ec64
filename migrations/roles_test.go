package migrations_test

import (
	"database/sql"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// deployment is a database with a role for each duty, none of them a superuser. The schema fencepost is there, and
// billing.invoices belongs to the table owner.
type deployment struct {
	owner, tableOwner, app             *sql.DB
	ownerRole, tableOwnerRole, appRole string
}

func deploy(t *testing.T) deployment {
	t.Helper()
	address := testenv.EmptyDatabase(t)
	admin := open(t, address)
	d := deployment{
		ownerRole: loginRole(t, admin, "owner"), tableOwnerRole: loginRole(t, admin, "table_owner"),
		appRole: loginRole(t, admin, "app"),
	}
	mustExec(t, admin, `GRANT CREATE ON DATABASE `+quoted(value[string](t, admin, `SELECT current_database()`))+
		` TO `+quoted(d.ownerRole)+`, `+quoted(d.tableOwnerRole))
	d.owner, d.tableOwner = open(t, asRole(t, address, d.ownerRole)), open(t, asRole(t, address, d.tableOwnerRole))
	d.app = open(t, asRole(t, address, d.appRole))
	up(t, d.owner, nil)
	mustExec(t, d.tableOwner, `CREATE SCHEMA billing`, `CREATE TABLE billing.invoices (id text PRIMARY KEY)`)
	return d
}

// grant lets the application write under claims, and the table owner protect.
func (d deployment) grant(t *testing.T) {
	t.Helper()
	mustExec(t, d.owner, `SELECT fencepost.grant_application('`+quoted(d.appRole)+`')`,
		`SELECT fencepost.grant_owner('`+quoted(d.tableOwnerRole)+`')`)
}

// wantDenied checks that err is a refused privilege, and that its text has each part.
func wantDenied(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if sqlState(err) != "42501" {
		t.Errorf("%s: %v, want SQLSTATE 42501", what, err)
	}
	for _, part := range parts {
		if !contains(err, part) {
			t.Errorf("%s: %v\nwant %s in it", what, err, part)
		}
	}
}

// A service that calls Up at its start does so with the role that it writes with.
func TestUpOfAnApplicationRoleDoesNothingIfNothingIsPending(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.grant(t)
	up(t, d.owner, also(2000, `SELECT 1`))
	if applied := up(t, d.app, also(2000, `SELECT 1`)); len(applied) != 0 {
		t.Errorf("Up of an application's role = %+v", applied)
	}
	wantNothingAmiss(t, d.app)
	all, err := migrations.Status(t.Context(), d.app, nil)
	if err != nil || len(all) != len(withOwn(t, 2000)) {
		t.Errorf("Status = %+v, %v", all, err)
	}
	wantRights(t, d.owner)
	// The control: the grant is what does it.
	mustExec(t, d.owner, `REVOKE SELECT ON fencepost.goose_version FROM `+quoted(d.appRole))
	_, err = migrations.Up(t.Context(), d.app, nil)
	wantDenied(t, "without the grant", err, `fencepost.grant_application('`+quoted(d.appRole)+`')`)
}

func TestUpOfARoleThatMayNotMigrateNamesTheOneThatDoes(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	own := `its owner ` + quoted(d.ownerRole) + ` runs the migrations`
	for name, role := range map[string]*sql.DB{"application": d.app, "table owner": d.tableOwner} {
		_, err := migrations.Up(t.Context(), role, nil)
		wantDenied(t, name+", no grants", err, `, `+quoted(d.ownerRole)+`, runs the migrations`, "grant_application")
		_, err = migrations.Status(t.Context(), role, nil)
		wantDenied(t, name+", Status", err, "grant_application")
		_, err = migrations.Problems(t.Context(), role)
		wantDenied(t, name+", Problems", err, "grant_application")
	}
	d.grant(t)
	_, err := migrations.Up(t.Context(), d.app, also(2000, `SELECT 1`))
	wantDenied(t, "a caller's own", err, "migration 2000", quoted(d.appRole), own)
	_, err = migrations.Down(t.Context(), d.app, nil)
	wantDenied(t, "Down", err, quoted(d.appRole), own)
	// This is the state that a release with one more migration finds.
	mustExec(t, d.owner, `DELETE FROM fencepost.goose_version WHERE version_id > 0`)
	_, err = migrations.Up(t.Context(), d.app, nil)
	wantDenied(t, "the library's own", err, quoted(d.appRole), own)
	// What the owner itself may not do is not the schema's fault.
	_, err = migrations.Up(t.Context(), d.owner, also(2000, `SELECT * FROM billing.invoices`))
	wantDenied(t, "the owner", err)
	if contains(err, "runs the migrations") {
		t.Errorf("the owner was told to ask the owner: %v", err)
	}

	address := testenv.EmptyDatabase(t)
	nobody := open(t, asRole(t, address, d.appRole))
	_, err = migrations.Up(t.Context(), nobody, nil)
	wantDenied(t, "no schema", err, quoted(d.appRole), "CREATE on the database")
}

// One role owns the schema fencepost and another the table: neither can run a migration of the table through
// Options.Also, and both get an error that says why.
func TestAlsoOfATableWithAnotherOwnerNamesTheRole(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.grant(t)
	table := migrations.Table{Schema: "billing", Name: "invoices"}
	rule := migrations.Protection{Table: table, Namespace: "billing", Prefix: "invoice:", Columns: []string{"id"}}
	for name, m := range map[string]*goose.Migration{
		"TokenColumn": tokenColumn(t, table), "Protect": protection(t, 1001, rule),
	} {
		opts := &migrations.Options{Also: []*goose.Migration{m}}
		_, err := migrations.Up(t.Context(), d.owner, opts)
		wantDenied(t, name+" as the schema's owner", err, `"billing"."invoices" belongs to `+quoted(d.tableOwnerRole),
			"ran as "+quoted(d.ownerRole), "goose provider", "Options.Also")
		_, err = migrations.Up(t.Context(), d.tableOwner, opts)
		wantDenied(t, name+" as the table's owner", err, quoted(d.ownerRole), "goose provider of that owner's own")
	}
}

// The procedure with two owners from the documentation: each migrates what it owns.
func TestEachOwnerMigratesItsOwn(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	err := migrateBilling(t.Context(), d.tableOwner)
	wantDenied(t, "without a grant", err, `fencepost.grant_owner('`+quoted(d.tableOwnerRole)+`')`)
	d.grant(t)
	for range 2 { // the second time nothing is left to do
		if err := migrateBilling(t.Context(), d.tableOwner); err != nil {
			t.Fatal(err)
		}
	}
	wantStates(t, d.tableOwner, "ZF004", `INSERT INTO billing.invoices (id) VALUES ('2026-11')`)
	wantVersions(t, d.owner, withOwn(t)...)
	wantRights(t, d.owner)
	up(t, d.app, nil)
}
