package migrations_test

import (
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// namesOfAlso are the names of the callers' own migrations in a list.
func namesOfAlso(list []migrations.Migration) []string {
	var names []string
	for _, m := range list {
		if m.Version >= migrations.FirstAlso {
			names = append(names, m.Name)
		}
	}
	return names
}

// A list for people shows what each migration is, and when it was applied.
func TestUpAndStatusNameEachMigration(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	grant, err := migrations.Grant(1002, migrations.Roles{})
	if err != nil {
		t.Fatal(err)
	}
	opts := also(2000, `SELECT 1`)
	named := also(2001, `SELECT 1`).Also[0]
	named.Source = "some/where/02001_backfill.go"
	opts.Also = append(opts.Also, tokenColumn(t, accounts), protection(t, 1001, accountsRule("account:")), grant, named)
	want := []string{
		"01000_token_column_public_accounts", "01001_protect_public_accounts_enforce", "01002_grant", "02000_go",
		"02001_backfill",
	}
	applied := up(t, db, opts)
	withoutTimes(t, applied)
	if got := namesOfAlso(applied); !equal(got, want) {
		t.Errorf("Up returned %q, want %q", got, want)
	}
	all, err := migrations.Status(t.Context(), db, opts)
	if got := namesOfAlso(all); err != nil || !equal(got, want) {
		t.Errorf("Status returned %q, %v, want %q", got, err, want)
	}
	withoutTimes(t, all)
}

// A caller without Options.Also, such as the command-line tool, learns whose an unknown version is.
func TestStatusNamesVersionsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	up(t, db, also(2000, `SELECT 1`))
	mustExec(t, db, `INSERT INTO fencepost.goose_version (version_id, is_applied) VALUES (999, true)`)
	all, err := migrations.Status(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"00999_newer_release", "02000_also"} {
		got := all[len(all)-2+i]
		if got.Name != want || got.State != migrations.Unknown {
			t.Errorf("Status has %+v, want %s", got, want)
		}
	}
}

// Names of tables are the caller's, and a dot or a slash in them does not end the name.
func TestNamesOfMigrationsAreWhole(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	table := migrations.Table{Schema: `a/b.c`, Name: `..\Größe test`}
	opts := &migrations.Options{Also: []*goose.Migration{tokenColumn(t, table)}}
	all, err := migrations.Status(t.Context(), db, opts)
	if got, want := namesOfAlso(all), "01000_token_column_a_b_c____Größe_test"; err != nil || !equal(got, []string{want}) {
		t.Errorf("Status returned %q, %v, want %s", got, err, want)
	}
}
