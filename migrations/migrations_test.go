package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

func TestStatusOfAnEmptyDatabaseCreatesNothing(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	// A read-only session could not if it wanted to.
	db := open(t, withParameter(t, url, "default_transaction_read_only", "on"))
	all, err := migrations.Status(t.Context(), db, withColumn(t))
	if err != nil {
		t.Fatal(err)
	}
	want := append(ownMigrations(t, migrations.Pending), migrations.Migration{
		Version: tokenVersion, Name: "01000_token_column_public_accounts", State: migrations.Pending,
	})
	if !equal(all, want) {
		t.Errorf("Status = %+v, want %+v", all, want)
	}
	if value[bool](t, db, `SELECT to_regnamespace('fencepost') IS NOT NULL`) {
		t.Error("Status created the schema")
	}
}

func TestStatusTellsAppliedPendingAndUnknown(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts, `SET TIME ZONE 'Asia/Tokyo'`)
	before := value[string](t, db, `SELECT clock_timestamp()::text`)
	up(t, db, also(2000, `SELECT 1`))
	all, err := migrations.Status(t.Context(), db, withColumn(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := versions(all); !equal(got, withOwn(t, tokenVersion, 2000)) {
		t.Fatalf("Status has %v", got)
	}
	all = all[len(all)-3:]
	for i, want := range []migrations.State{migrations.Applied, migrations.Pending, migrations.Unknown} {
		if all[i].State != want {
			t.Errorf("version %d is %s, want %s", all[i].Version, all[i].State, want)
		}
		if all[i].AppliedAt.IsZero() != (want == migrations.Pending) {
			t.Errorf("version %d was applied at %v", all[i].Version, all[i].AppliedAt)
		}
		if want != migrations.Pending &&
			!value[bool](
				t,
				db,
				`SELECT $1::timestamptz BETWEEN $2::text::timestamptz AND clock_timestamp()`,
				all[i].AppliedAt,
				before,
			) {
			t.Errorf("version %d was applied at %v, not between %v and now", all[i].Version, all[i].AppliedAt, before)
		}
	}
}

// An older release meets a newer one's database during a rolling deployment.
func TestUpIgnoresVersionsItDoesNotKnow(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	up(t, db, nil)
	mustExec(t, db, `INSERT INTO fencepost.goose_version (version_id, is_applied) VALUES (999, true)`)
	if applied := up(t, db, nil); len(applied) != 0 {
		t.Errorf("Up applied %v", applied)
	}
}

// A new release's own migration comes after a caller's that has the higher number.
func TestUpAppliesALowerVersionLater(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	up(t, db, also(3000, `SELECT 1`))
	up(t, db, also(2000, `SELECT 1`))
	wantVersions(t, db, withOwn(t, 2000, 3000)...)
}

func TestUpReturnsWhatItAppliedBesideAnError(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	applied, err := migrations.Up(t.Context(), db, also(2000, `SELECT 1/0`))
	if sqlState(err) != "22012" {
		t.Fatalf("Up = %v, want a division by zero", err)
	}
	if want := ownMigrations(t, migrations.Applied); !equal(withoutTimes(t, applied), want) {
		t.Errorf("Up = %+v, want %+v", applied, want)
	}
	wantVersions(t, db, withOwn(t)...)
}

// A database where somebody else has made the schema, and may create no other.
func TestUpNeedsNoRightOnTheDatabaseWhereTheSchemaStands(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	db.SetMaxOpenConns(1) // for SET ROLE
	mustExec(t, db, `DO $$ BEGIN EXECUTE format('CREATE ROLE %1$I;
		CREATE SCHEMA fencepost AUTHORIZATION %1$I', current_database()); END $$`,
		`SELECT set_config('role', current_database(), false)`)
	defer mustExec(t, db, `RESET ROLE`, `DO $$ BEGIN EXECUTE format('DROP OWNED BY %1$I CASCADE;
		DROP ROLE %1$I', current_database()); END $$`)
	up(t, db, nil)
	wantVersions(t, db, withOwn(t)...)
}

func TestOnlyTheOwnerMayBeginAMigration(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	up(t, db, nil)
	const open = `SELECT string_agg(p.proname, ',')
		FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
		WHERE p.pronamespace = 'fencepost'::regnamespace AND a.grantee = 0`
	if got := value[sql.NullString](t, db, open); got.Valid {
		t.Errorf("everybody may call %s", got.String)
	}
}

func TestArgumentsThatCannotBeRight(t *testing.T) {
	t.Parallel()
	// It never connects: invalid options are refused before anything is sent.
	db, err := sql.Open("pgx", "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	inTx := &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error { return nil }}
	outside := &goose.GoFunc{RunDB: func(context.Context, *sql.DB) error { return nil }}
	for name, opts := range map[string]*migrations.Options{
		"to below zero":     {To: -1},
		"nil migration":     {Also: []*goose.Migration{nil}},
		"library's version": {Also: []*goose.Migration{goose.NewGoMigration(migrations.FirstAlso-1, inTx, nil)}},
		"version twice": {Also: []*goose.Migration{
			goose.NewGoMigration(2000, inTx, nil),
			goose.NewGoMigration(2000, nil, nil),
		}},
		"up outside a tx":   {Also: []*goose.Migration{goose.NewGoMigration(2000, outside, nil)}},
		"down outside a tx": {Also: []*goose.Migration{goose.NewGoMigration(2000, nil, outside)}},
		"SQL file":          {Also: []*goose.Migration{{Type: goose.TypeSQL, Version: 2000, Source: "2000_x.sql"}}},
	} {
		calls := map[string]func(context.Context, *sql.DB, *migrations.Options) ([]migrations.Migration, error){
			"Up": migrations.Up, "Down": migrations.Down, "Status": migrations.Status,
		}
		for call, fn := range calls {
			if _, err := fn(t.Context(), db, opts); !errors.Is(err, migrations.ErrInvalid) {
				t.Errorf("%s, %s: %v, want ErrInvalid", name, call, err)
			}
		}
	}
	if _, err := migrations.Up(t.Context(), nil, nil); !errors.Is(err, migrations.ErrInvalid) {
		t.Errorf("nil database: %v, want ErrInvalid", err)
	}
}

func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	db := open(t, "postgres://somebody:secret@127.0.0.1:1/none")
	_, err := migrations.Up(t.Context(), db, nil)
	if err == nil || contains(err, "secret") {
		t.Errorf("Up = %v", err)
	}
}

func TestTheLoggerIsToldOfEveryMigration(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	var text strings.Builder
	opts := also(2000, `SELECT 1`)
	opts.Logger = slog.New(slog.NewTextHandler(&text, nil))
	up(t, db, opts)
	for _, version := range []int64{1, 2000} {
		if want := fmt.Sprintf("version=%d", version); !strings.Contains(text.String(), want) {
			t.Errorf("nothing logged of %s: %s", want, text.String())
		}
	}
}

// Each section of each file begins with the two statements that make it safe; a section that a new
// file leaves out, or copies with the old number, would not be.
func TestEverySectionBeginsUnderTheLock(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS(), "sql/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("migrations: %v, %v", names, err)
	}
	for _, name := range names {
		version, err := goose.NumericComponent(path.Base(name))
		if err != nil || version >= migrations.FirstAlso {
			t.Errorf("%s: version %d, %v", name, version, err)
		}
		data, err := fs.ReadFile(migrations.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		sections := strings.Split(string(data), "-- +goose ")
		for direction, isUp := range map[string]bool{"Up\n": true, "Down\n": false} {
			want := fmt.Sprintf("%sSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"+
				"SELECT fencepost.begin_migration(%d, %t);\n", direction, version, isUp)
			found := 0
			for _, s := range sections {
				if strings.HasPrefix(s, want) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%s: %d sections begin with:\n%s", name, found, want)
			}
		}
		if strings.Contains(string(data), "NO TRANSACTION") {
			t.Errorf("%s does not run in a transaction", name)
		}
	}
}
