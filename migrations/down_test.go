package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// also is a caller's migration of one statement.
func also(version int64, statement string) *migrations.Options {
	return &migrations.Options{Also: []*goose.Migration{
		goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}}, nil),
	}}
}

func contains(err error, part string) bool { return err != nil && strings.Contains(err.Error(), part) }

func versions(list []migrations.Migration) []int64 {
	out := make([]int64, 0, len(list))
	for _, m := range list {
		out = append(out, m.Version)
	}
	return out
}

func TestDownLeavesWhatUpNeedsAndUpWorksAgain(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	for range 2 {
		if got := versions(up(t, db, withColumn(t))); !equal(got, withOwn(t, tokenVersion)) {
			t.Fatalf("Up applied %v", got)
		}
		wantTokenColumn(t, db)
		reverted, err := migrations.Down(t.Context(), db, withColumn(t))
		if err != nil {
			t.Fatal(err)
		}
		want := withOwn(t, tokenVersion)
		slices.Reverse(want)
		if got := versions(reverted); !equal(got, want) {
			t.Fatalf("Down took down %v", got)
		}
		wantVersions(t, db)
		const left = `SELECT string_agg(name, ',' ORDER BY name) FROM (
			SELECT relname::text FROM pg_class WHERE relnamespace = 'fencepost'::regnamespace AND relkind IN ('r', 'v')
			UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'fencepost'::regnamespace) AS n (name)`
		if got, want := value[string](t, db, left), "begin_migration,goose_version"; got != want {
			t.Errorf("Down left %s, want %s", got, want)
		}
	}
	again, err := migrations.Down(t.Context(), db, withColumn(t))
	if err != nil || len(again) != 0 {
		t.Errorf("Down of nothing = %v, %v", again, err)
	}
}

func TestDownOfADatabaseThatHasNothing(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	reverted, err := migrations.Down(t.Context(), db, &migrations.Options{Force: true})
	if err != nil || len(reverted) != 0 {
		t.Errorf("Down = %v, %v", reverted, err)
	}
	if value[bool](t, db, `SELECT to_regnamespace('fencepost') IS NOT NULL`) {
		t.Error("Down created the schema")
	}
}

func TestCase08_DownRefusesWhileARowCarriesAToken(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	mustExec(t, db, `UPDATE public.accounts SET last_fencing_token = 50 WHERE id = 2`)

	_, err := migrations.Down(t.Context(), db, withColumn(t))
	if !errors.Is(err, migrations.ErrTokensRemain) {
		t.Fatalf("Down = %v, want ErrTokensRemain", err)
	}
	for _, part := range []string{`"public"."accounts"."last_fencing_token"`, "overtaken workers", "Options.Force"} {
		if !contains(err, part) {
			t.Errorf("the error does not say %s: %v", part, err)
		}
	}
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	if n := value[int](t, db, `SELECT count(*) FROM public.accounts WHERE last_fencing_token = 50`); n != 1 {
		t.Error("the token is gone")
	}

	if !value[bool](t, db, claimOne) {
		t.Fatal("the claim was refused")
	}
	opts := withColumn(t)
	opts.Force, opts.To = true, lastOwn(t)
	if _, err := migrations.Down(t.Context(), db, opts); err != nil {
		t.Fatalf("forced Down: %v", err)
	}
	wantVersions(t, db, withOwn(t)...)
	if n := value[int](t, db, `SELECT count(*) FROM fencepost.fence`); n != 1 {
		t.Error("the fence was emptied though its migration stays")
	}
}

// A policy that hides rows from the migrator must not hide their tokens.
func TestCase08_DownSeesRowsBehindAPolicy(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	db.SetMaxOpenConns(1) // for SET ROLE
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	mustExec(t, db, `UPDATE public.accounts SET last_fencing_token = 50`,
		`DO $$ BEGIN EXECUTE format('CREATE ROLE %I', current_database()); END $$`,
		`DO $$ BEGIN EXECUTE format('GRANT ALL ON SCHEMA fencepost, public TO %1$I;
			GRANT ALL ON ALL TABLES IN SCHEMA fencepost, public TO %1$I;
			GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencepost TO %1$I; ALTER TABLE public.accounts OWNER TO %1$I',
			current_database()); END $$`,
		`ALTER TABLE public.accounts ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`,
		`SELECT set_config('role', current_database(), false)`)
	defer mustExec(t, db, `RESET ROLE`, `DO $$ BEGIN EXECUTE format('REASSIGN OWNED BY %1$I TO CURRENT_USER;
		DROP OWNED BY %1$I; DROP ROLE %1$I', current_database()); END $$`)
	if n := value[int](t, db, `SELECT count(*) FROM public.accounts`); n != 0 {
		t.Fatalf("the policy shows %d rows, want none", n)
	}
	opts := withColumn(t)
	opts.To = lastOwn(t)
	if _, err := migrations.Down(t.Context(), db, opts); err == nil {
		t.Error("Down dropped tokens that a policy hid from it")
	}
}

const claimOne = `SELECT claimed FROM fencepost.claim('r', 1, '00000000-0000-0000-0000-000000000001')`

func TestCase08_DownRefusesWhileFencesExist(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	up(t, db, nil)
	if !value[bool](t, db, claimOne) {
		t.Fatal("the claim was refused")
	}
	_, err := migrations.Down(t.Context(), db, nil)
	if !errors.Is(err, migrations.ErrTokensRemain) || sqlState(err) != "ZF003" {
		t.Fatalf("Down = %v, want ErrTokensRemain", err)
	}
	wantVersions(t, db, 1) // those above it are down already
	if n := value[int](t, db, `SELECT count(*) FROM fencepost.fence`); n != 1 {
		t.Error("the fence is gone")
	}
	if _, err := migrations.Down(t.Context(), db, &migrations.Options{Force: true}); err != nil {
		t.Fatalf("forced Down: %v", err)
	}
	wantVersions(t, db)
}

func TestDownKnowsEveryVersionBeforeItBegins(t *testing.T) {
	t.Parallel()
	db := open(t, testenv.EmptyDatabase(t))
	mustExec(t, db, createAccounts)
	up(t, db, also(2000, `SELECT 1`))
	up(t, db, withColumn(t))
	_, err := migrations.Down(t.Context(), db, withColumn(t)) // 1000 is known and came last
	if !errors.Is(err, migrations.ErrUnknownVersion) || !contains(err, "2000") {
		t.Errorf("Down = %v, want ErrUnknownVersion for 2000", err)
	}
	wantVersions(t, db, withOwn(t, tokenVersion, 2000)...)
}

func TestDownInEightAtOnce(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	lock := begin(t, open(t, url), takeMigrationLock)
	errs := make(chan error, migrators)
	for range migrators {
		mine := open(t, url)
		go func() {
			_, err := migrations.Down(t.Context(), mine, withColumn(t))
			errs <- err
		}()
	}
	waitFor(t, db, migrators, waitingMigrators)
	if err := lock.Commit(); err != nil {
		t.Fatal(err)
	}
	for range migrators {
		if err := receive(t, errs); err != nil {
			t.Error(err)
		}
	}
	wantVersions(t, db)
}
