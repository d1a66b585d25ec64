package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

const (
	lockTimeout  = 3 * time.Second // documented
	lockAttempts = 5               // documented
	slack        = 2 * time.Second // for a busy machine
)

func TestCase23_ReadersAreHeldUpNoLongerThanTheLockTimeout(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	up(t, db, nil)
	before := value[int64](t, db, `SELECT pg_relation_filenode('public.accounts')`)

	reader := begin(t, open(t, url), `SELECT FROM public.accounts`)
	migrator := open(t, url)
	migrator.SetMaxOpenConns(1) // the session in which settings could outlive the migration
	began := time.Now()
	outcome := make(chan error, 1)
	go func() {
		_, err := migrations.Up(t.Context(), migrator, withColumn(t))
		outcome <- err
	}()
	for range 2 { // the first attempt, and a later one
		waitFor(t, db, 1, queuedForTable)
		ctx, cancel := context.WithTimeout(t.Context(), lockTimeout+slack)
		_, err := db.ExecContext(ctx, `SELECT FROM public.accounts`) // the third session
		cancel()
		if err != nil {
			t.Fatalf("the third session was held up: %v", err)
		}
	}

	err := receive(t, outcome)
	if sqlState(err) != "55P03" {
		t.Fatalf("Up = %v, want SQLSTATE 55P03", err)
	}
	took := time.Since(began)
	if took < lockAttempts*lockTimeout || took > lockAttempts*(lockTimeout+time.Second)+2*slack {
		t.Errorf("Up gave up after %v, want %d attempts of %v with pauses", took, lockAttempts, lockTimeout)
	}
	wantVersions(t, db, withOwn(t)...)
	wantDefaults(t, migrator)

	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	up(t, migrator, withColumn(t))
	wantVersions(t, db, withOwn(t, tokenVersion)...)
	wantTokenColumn(t, db)
	if after := value[int64](t, db, `SELECT pg_relation_filenode('public.accounts')`); after != before {
		t.Errorf("the table was rewritten: filenode %d became %d", before, after)
	}
	wantDefaults(t, migrator)
}

func TestCase23_AReaderThatGoesInTimeCostsOneAttempt(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	reader := begin(t, open(t, url), `SELECT FROM public.accounts`)
	outcome := make(chan error, 1)
	go func() {
		_, err := migrations.Up(t.Context(), open(t, url), withColumn(t))
		outcome <- err
	}()
	waitFor(t, db, 1, queuedForTable)
	waitFor(t, db, 0, queuedForTable) // the first attempt has failed
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, outcome); err != nil {
		t.Fatal(err)
	}
	wantTokenColumn(t, db)
}

// What the lock timeout is for.
func TestCase23_ControlWithPlainGoose(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	begin(t, open(t, url), `SELECT FROM public.accounts`)
	ctx, cancel := context.WithCancel(t.Context())
	outcome := make(chan error, 1)
	plan := barePlan(t, open(t, url), "-- +goose Up\nALTER TABLE public.accounts ADD COLUMN c bigint NOT NULL DEFAULT 0;",
		newBarrier(1))
	go func() {
		_, err := plan.Up(ctx)
		outcome <- err
	}()
	waitFor(t, db, 1, queuedForTable)
	third := begin(t, db, `SET LOCAL statement_timeout = '5s'`)
	_, err := third.ExecContext(t.Context(), `SELECT FROM public.accounts`)
	if sqlState(err) != "57014" {
		t.Errorf("the third session got through behind a plain ALTER: %v", err)
	}
	cancel()
	_ = receive(t, outcome)
}

// A pause between attempts ends with the context as well.
func TestCase23_TheContextEndsTheRetries(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	up(t, db, nil)
	begin(t, open(t, url), `SELECT FROM public.accounts`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcome := make(chan error, 1)
	go func() {
		_, err := migrations.Up(ctx, open(t, url), withColumn(t))
		outcome <- err
	}()
	waitFor(t, db, 1, queuedForTable)
	waitFor(t, db, 0, queuedForTable) // it pauses
	cancel()
	select {
	case err := <-outcome:
		if !isCanceled(err) {
			t.Errorf("Up = %v, want the context's error", err)
		}
	case <-time.After(lockTimeout):
		t.Error("Up went on after its context ended")
	}
}

// The wait for another migrator ends with the context alone: a short lock_timeout of the session
// does not apply to it, and ours is set after it.
func TestCase23_TheLockTimeoutDoesNotApplyToTheMigrationLock(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"first migration": true, "later migration": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.EmptyDatabase(t)
			db := open(t, url)
			mustExec(t, db, createAccounts)
			if !first {
				up(t, db, nil)
			}
			lock := begin(t, open(t, url), takeMigrationLock)
			hasty := open(t, withParameter(t, url, "lock_timeout", "50ms"))
			outcome := make(chan error, 1)
			go func() {
				_, err := migrations.Up(t.Context(), hasty, withColumn(t))
				outcome <- err
			}()
			waitFor(t, db, 1, waitingMigrators)
			select {
			case err := <-outcome:
				t.Fatalf("Up did not wait: %v", err)
			case <-time.After(lockTimeout + 500*time.Millisecond): // longer than either setting
			}
			if err := lock.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := receive(t, outcome); err != nil {
				t.Fatal(err)
			}
			wantVersions(t, db, withOwn(t, tokenVersion)...)
		})
	}
}
