package migrations_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// deadRows makes a table full of deleted rows that VACUUM can remove, so that it can give all their pages back.
func deadRows(t *testing.T, db *sql.DB) {
	t.Helper()
	mustExec(t, db, `CREATE TABLE public.visits AS SELECT generate_series(1, 1000) AS id`, `DELETE FROM public.visits`)
}

// vacuumed vacuums the table until nothing is left of it, and reports whether that came within the time given. A
// single VACUUM may meet another session's statement, or autovacuum.
func vacuumed(t *testing.T, db *sql.DB, within time.Duration) bool {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(within); ; {
		mustExec(t, db, `VACUUM public.visits`)
		if value[int](t, db, `SELECT pg_relation_size('public.visits')`) == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-end:
			return false
		}
	}
}

// C45: a migrator that waits for another migrator, or for work on a table, has no snapshot that makes VACUUM keep dead
// rows, and no transaction id either.
func TestCase45_VacuumRemovesRowsBesideWaitingMigrators(t *testing.T) {
	t.Parallel()
	for name, migrate := range map[string]func(t *testing.T, url string) error{
		"Up": func(t *testing.T, url string) error {
			t.Helper()
			_, err := migrations.Up(t.Context(), open(t, url), withColumn(t))
			return err
		},
		"in a plan of the caller's own": func(t *testing.T, url string) error {
			t.Helper()
			tx := begin(t, open(t, url))
			if err := tokenColumn(t, accounts).UpFnContext(t.Context(), tx); err != nil {
				return err
			}
			return tx.Commit()
		},
	} {
		for what, c := range map[string]struct{ held, waiting string }{
			"the migration lock": {takeMigrationLock, waitingMigrators},
			"a table":            {`LOCK TABLE public.accounts IN SHARE UPDATE EXCLUSIVE MODE`, waitingForWork},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				url := testenv.EmptyDatabase(t)
				db := open(t, url)
				mustExec(t, db, createAccounts)
				up(t, db, nil)
				long := begin(t, open(t, url), c.held)
				outcome := make(chan error, 1)
				go func() { outcome <- migrate(t, url) }()
				waitFor(t, db, 1, c.waiting)
				deadRows(t, db)
				if !vacuumed(t, db, patience) {
					t.Error("dead rows are kept")
				}
				release(t, long, outcome)
				wantTokenColumn(t, db)
			})
		}
	}
}

// The control: a migrator that waits in the server keeps dead rows for as long as it waits.
func TestCase45_ControlWaitingWithASnapshotKeepsDeadRows(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	long := begin(t, open(t, url), takeMigrationLock)
	waiter := begin(t, open(t, url))
	outcome := make(chan error, 1)
	go func() {
		_, err := waiter.ExecContext(context.WithoutCancel(t.Context()), takeMigrationLock)
		outcome <- err
	}()
	waitFor(t, db, 1, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	deadRows(t, db)
	if vacuumed(t, db, time.Second) {
		t.Error("dead rows were removed: the test above shows nothing")
	}
	release(t, long, outcome)
}
