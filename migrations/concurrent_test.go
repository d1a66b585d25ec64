package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

const migrators = 8

// The worst moment is made, not hoped for: the test holds the migration lock until all processes
// have seen the migration pending and wait.
func TestCase12_EightProcessesOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	lock := begin(t, open(t, url), takeMigrationLock)
	all := startAll(t, migrators, job{URL: url, Column: true})
	waitFor(t, db, migrators, waitingMigrators)
	if err := lock.Commit(); err != nil {
		t.Fatal(err)
	}
	wantSuccess(t, all)
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, db)
}

func TestCase12_EightProcessesAtTheVersionBefore(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	up(t, db, nil)
	lock := begin(t, open(t, url), takeMigrationLock)
	all := startAll(t, migrators, job{URL: url, Column: true})
	waitFor(t, db, migrators, waitingMigrators)
	if err := lock.Commit(); err != nil {
		t.Fatal(err)
	}
	wantSuccess(t, all)
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, db)
}

// A snapshot older than the wait for the lock would hide what the other migrators did.
func TestCase12_EightProcessesWhoseSessionsDefaultToSerializable(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts, `DO $$ BEGIN EXECUTE format(
		'ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	lock := begin(t, open(t, url), takeMigrationLock)
	all := startAll(t, migrators, job{URL: url, Column: true})
	waitFor(t, db, migrators, waitingMigrators)
	if err := lock.Commit(); err != nil {
		t.Fatal(err)
	}
	wantSuccess(t, all)
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, db)
}

func TestCase12_OneOfEightIsKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]string{
		"between statements": "-",
		"inside a statement": "SELECT pg_sleep(3600)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.EmptyDatabase(t)
			db := open(t, url)
			if hang != "-" && value[int](t, db, `SELECT current_setting('server_version_num')::int / 10000`) < 14 {
				hang = "SELECT pg_sleep(5)" // PostgreSQL 13 cannot tell, and ends the statement first
			}
			mustExec(t, db, createAccounts)
			victim := start(t, job{URL: url, Column: true, Hang: hang})
			victim.awaitInside(t)
			others := startAll(t, migrators-1, job{URL: url, Column: true})
			waitFor(t, db, migrators-1, waitingMigrators)
			wantVersions(t, db, withOwn(t)...)

			killed := time.Now()
			victim.kill(t)
			wantSuccess(t, others)
			if took := time.Since(killed); took > 15*time.Second {
				t.Errorf("the others were done %v after the kill", took)
			}
			wantVersions(t, db, withOwn(t, tokenVersion)...)
			wantTokenColumn(t, db)
			waitFor(t, db, 0, advisoryLocks)
		})
	}
}

// What the lock is for: the same work by goose alone, all having seen it pending.
func TestCase12_ControlWithoutTheLock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql    string
		states []string // it depends on which catalog the losers meet the winner in
	}{
		"create table": {
			"-- +goose Up\nCREATE TABLE public.fence (resource text PRIMARY KEY);",
			[]string{"42P07", "42710", "23505"},
		},
		"add column": {
			"-- +goose Up\nALTER TABLE public.accounts ADD COLUMN last_fencing_token bigint NOT NULL DEFAULT 0;",
			[]string{"42701"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.EmptyDatabase(t)
			mustExec(t, open(t, url), createAccounts)
			// The version table is there, so that the race is about the migration alone.
			if _, err := barePlan(t, open(t, url), "-- +goose Up\n", nil).Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			seen := newBarrier(migrators)
			errs := make(chan error, migrators)
			for range migrators {
				plan := barePlan(t, open(t, url), c.sql, seen)
				go func() {
					_, err := plan.Up(t.Context())
					errs <- err
				}()
			}
			succeeded := 0
			for range migrators {
				err := receive(t, errs)
				if err == nil {
					succeeded++
				} else if !slices.Contains(c.states, sqlState(err)) {
					t.Errorf("want one of the SQLSTATEs %v: %v", c.states, err)
				}
			}
			if succeeded != 1 {
				t.Errorf("%d of %d succeeded without the lock, want 1", succeeded, migrators)
			}
		})
	}
}

// Without the look at the version table under the lock, work that can be repeated is repeated, and
// the version recorded for each.
func TestCase12_ControlWithoutTheSecondLook(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	const repeatable = "-- +goose Up\n" + takeMigrationLock + ";\n"
	if _, err := barePlan(t, db, "-- +goose Up\n", nil).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := newBarrier(migrators)
	errs := make(chan error, migrators)
	for range migrators {
		plan := barePlan(t, open(t, url), repeatable, seen)
		go func() {
			_, err := plan.Up(t.Context())
			errs <- err
		}()
	}
	for range migrators {
		if err := receive(t, errs); err != nil {
			t.Error(err)
		}
	}
	if n := value[int](t, db, `SELECT count(*) FROM public.bare_version WHERE version_id = 2`); n != migrators {
		t.Errorf("the version stands in the table %d times without the second look, want %d", n, migrators)
	}
}

func TestCase12_WaitingHonoursTheContext(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*sql.DB){
		"for the first migration": func(*sql.DB) {},
		"for a later one":         func(db *sql.DB) { up(t, db, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.EmptyDatabase(t)
			db := open(t, url)
			mustExec(t, db, createAccounts)
			prepare(db)
			begin(t, open(t, url), takeMigrationLock)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := migrations.Up(ctx, db, withColumn(t))
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Up = %v, want the context's error", err)
			}
			waitFor(t, db, 0, waitingMigrators)
		})
	}
}

// Somebody else's long migration holds the lock while this program starts.
func TestCase12_NothingPendingTakesNoLock(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	up(t, db, withColumn(t))
	begin(t, open(t, url), takeMigrationLock, `LOCK TABLE fencepost.goose_version IN EXCLUSIVE MODE`)

	// A read-only session shows that nothing is written either.
	readOnly := open(t, url)
	readOnly.SetMaxOpenConns(1)
	mustExec(t, readOnly, `SET default_transaction_read_only = on`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	applied, err := migrations.Up(ctx, readOnly, withColumn(t))
	if err != nil || len(applied) != 0 {
		t.Errorf("Up = %v, %v, want nothing applied", applied, err)
	}
}

// Up in one place and Down in another at once is nobody's plan; neither may break the other.
func TestUpAndDownAtOnceLeaveAWholeDatabase(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	errs := make(chan error, 2)
	for range 5 {
		go func() { _, err := migrations.Up(t.Context(), db, nil); errs <- err }()
		go func() { _, err := migrations.Down(t.Context(), db, nil); errs <- err }()
		for range 2 {
			if err := receive(t, errs); err != nil {
				t.Fatal(err)
			}
		}
		recorded := value[bool](t, db, `SELECT EXISTS (SELECT FROM fencepost.goose_version WHERE version_id = 1)`)
		exists := value[bool](t, db, `SELECT to_regclass('fencepost.fence') IS NOT NULL`)
		if recorded != exists {
			t.Fatalf("version recorded: %v, table there: %v", recorded, exists)
		}
	}
}

// A migration of the caller's own runs once, though all have seen it pending.
func TestCase12_ACallersMigrationRunsOnce(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, `CREATE TABLE public.runs (n int)`)
	up(t, db, nil)
	lock := begin(t, open(t, url), takeMigrationLock)
	type outcome struct {
		applied []migrations.Migration
		err     error
	}
	outcomes := make(chan outcome, migrators)
	for range migrators {
		mine := open(t, url)
		go func() {
			applied, err := migrations.Up(t.Context(), mine, &migrations.Options{Also: []*goose.Migration{
				goose.NewGoMigration(2000, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, `INSERT INTO public.runs VALUES (1)`)
					return err
				}}, nil),
			}})
			outcomes <- outcome{applied, err}
		}()
	}
	waitFor(t, db, migrators, waitingMigrators)
	if err := lock.Commit(); err != nil {
		t.Fatal(err)
	}
	applied := 0
	for range migrators {
		o := receive(t, outcomes)
		if o.err != nil {
			t.Error(o.err)
		}
		applied += len(o.applied)
	}
	if runs := value[int](t, db, `SELECT count(*) FROM public.runs`); runs != 1 || applied != 1 {
		t.Errorf("it ran %d times and was returned %d times, want once each", runs, applied)
	}
	wantVersions(t, db, withOwn(t, 2000)...)
}
