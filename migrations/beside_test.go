package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// What PostgreSQL does beside its users, and what it waits for until then: transactions that have the table, then
// snapshots older than its own.
var besides = map[string]string{
	"create index": `CREATE INDEX CONCURRENTLY balances ON public.accounts (balance)`,
	"reindex":      `REINDEX TABLE CONCURRENTLY public.accounts`,
}

const (
	// writing is what a transaction has on a table that it has written.
	writing = `LOCK TABLE public.accounts IN ROW EXCLUSIVE MODE`
	queued  = `SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	waitingBeside = `SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE l.locktype = 'virtualxid' AND NOT l.granted AND a.datname = current_database()`
	// A migrator that waits for the end of such work, or for another migrator, polled as its last statement.
	waitingForEither = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid() AND query LIKE '/* waits for %'`
	waitingForWork = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid() AND query LIKE '/* waits for work on a table */%'`
	invalidIndexes = `SELECT count(*) FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
		WHERE c.relname = 'accounts' AND NOT i.indisvalid`
)

// patient returns the address for sessions that do not look for deadlocks: the work that they meet finds them, and
// fails.
func patient(t *testing.T, address string) string {
	t.Helper()
	return withParameter(t, address, "deadlock_timeout", "1min")
}

// startBeside begins a statement that waits for the long transaction.
func startBeside(t *testing.T, db *sql.DB, statement string) <-chan error {
	t.Helper()
	outcome := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(t.Context(), statement)
		outcome <- err
	}()
	waitFor(t, db, 1, waitingBeside)
	return outcome
}

// release ends the long transaction, and wants all that waited for it to succeed.
func release(t *testing.T, long *sql.Tx, waiting ...<-chan error) {
	t.Helper()
	if err := long.Rollback(); err != nil {
		t.Fatal(err)
	}
	for _, outcome := range waiting {
		if err := receive(t, outcome); err != nil {
			t.Error(err)
		}
	}
}

// Both migrators wait, for the end of the work or for each other, and do so without a lock.
func TestCase45_AnIndexIsBuiltBesideWaitingMigrators(t *testing.T) {
	t.Parallel()
	rule := accountsRule("account:")
	for what, statement := range besides {
		for name, c := range map[string]struct {
			before, then func(t *testing.T) *migrations.Options
		}{
			"token column": {func(*testing.T) *migrations.Options { return nil }, withColumn},
			"protect": {withColumn, func(t *testing.T) *migrations.Options {
				t.Helper()
				return &migrations.Options{Also: []*goose.Migration{tokenColumn(t, accounts), protection(t, 1001, rule)}}
			}},
			"protect otherwise": {observedThenEnforced, func(t *testing.T) *migrations.Options {
				t.Helper()
				o := observedThenEnforced(t)
				other := rule
				other.Prefix = "other:"
				o.Also = append(o.Also, protection(t, 1003, other))
				return o
			}},
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				t.Parallel()
				url := testenv.EmptyDatabase(t)
				db := open(t, url)
				mustExec(t, db, createAccounts)
				up(t, db, c.before(t))
				long := begin(t, open(t, url), writing)
				built := startBeside(t, open(t, url), statement)
				outcomes := make(chan error, 2)
				for range 2 {
					mine := open(t, patient(t, url))
					mine.SetMaxOpenConns(1) // which shows what it waits for
					go func() {
						_, err := migrations.Up(t.Context(), mine, c.then(t))
						outcomes <- err
					}()
				}
				waitFor(t, db, 2, waitingForEither)
				release(t, long, built, outcomes, outcomes)
				if n := value[int](t, db, invalidIndexes); n != 0 {
					t.Errorf("%d indexes are left invalid", n)
				}
			})
		}
	}
}

// inOwnTransaction runs a migration as a plan of the caller's own does.
func inOwnTransaction(ctx context.Context, db *sql.DB, m *goose.Migration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := m.UpFnContext(ctx, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// A migration in a plan of the caller's own waits in a transaction that it cannot end; without a snapshot all the same.
func TestCase45_InTheCallersOwnProvider(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	long := begin(t, open(t, url), writing)
	built := startBeside(t, open(t, url), besides["create index"])
	outcomes := make(chan error, 2)
	for range 2 {
		mine, m := open(t, patient(t, url)), tokenColumn(t, accounts)
		go func() {
			err := inOwnTransaction(t.Context(), mine, m)
			// The work may meet a look of the transaction's, in each of its phases, and then waits for its end: it goes on
			// afterwards.
			for tries := 4; tries > 0 && sqlState(err) == "55P03"; tries-- {
				err = inOwnTransaction(t.Context(), mine, m)
			}
			outcomes <- err
		}()
	}
	waitFor(t, db, 1, waitingMigrators)
	waitFor(t, db, 1, waitingForWork)
	release(t, long, built, outcomes, outcomes)
	wantTokenColumn(t, db)
}

// Down waits for the library's own tables as well.
func TestCase45_DownBesideAReindexOfTheFence(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	up(t, db, nil)
	long := begin(t, open(t, url), `LOCK TABLE fencepost.fence IN ROW EXCLUSIVE MODE`)
	built := startBeside(t, open(t, url), `REINDEX TABLE CONCURRENTLY fencepost.fence`)
	outcome := make(chan error, 1)
	go func() {
		_, err := migrations.Down(t.Context(), open(t, patient(t, url)), &migrations.Options{Force: true})
		outcome <- err
	}()
	waitFor(t, db, 1, waitingForWork)
	release(t, long, built, outcome)
}

// The control: statements that have a snapshot wait for the migration lock, and for the table.
func TestCase45_ControlWaitingWithASnapshotBreaksTheIndex(t *testing.T) {
	t.Parallel()
	url := testenv.EmptyDatabase(t)
	db := open(t, url)
	mustExec(t, db, createAccounts)
	long := begin(t, open(t, url), writing)
	built := startBeside(t, open(t, url), besides["create index"])
	outcomes := make(chan error, 2)
	for range 2 {
		tx := begin(t, open(t, patient(t, url)))
		go func() {
			for _, s := range []string{takeMigrationLock, `ALTER TABLE public.accounts ADD COLUMN IF NOT EXISTS c bigint`} {
				if _, err := tx.ExecContext(context.WithoutCancel(t.Context()), s); err != nil {
					outcomes <- err
					_ = tx.Rollback()
					return
				}
			}
			outcomes <- tx.Commit()
		}()
	}
	waitFor(t, db, 1, queued)
	if err := long.Rollback(); err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, err := range []error{receive(t, built), receive(t, outcomes), receive(t, outcomes)} {
		if sqlState(err) == "40P01" {
			broken++
		} else if err != nil {
			t.Error(err)
		}
	}
	if broken == 0 || value[int](t, db, invalidIndexes) != 1 {
		t.Errorf("%d deadlocks, %d invalid indexes: the tests above show nothing", broken, value[int](t, db, invalidIndexes))
	}
}
