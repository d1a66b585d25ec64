package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the "pgx" driver
	"github.com/pressly/goose/v3"

	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/migrations"
)

// TestMain runs the tests, or is one migrator process of a test.
func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	if job := os.Getenv(migratorEnv); job != "" {
		os.Exit(runMigrator(job))
	}
	testenv.MainOfWaiting(m, 3)
}

// patience bounds every wait for something that must happen.
const patience = time.Minute

// tokenVersion is the version of the token column of the test's own table.
const tokenVersion = migrations.FirstAlso

// open returns a handle on the database that url names, closed when the test ends.
func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

func mustExec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// value returns the one value that a query yields.
func value[T any](t *testing.T, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// begin opens a transaction that the test holds for a while; it ends with the test at the latest.
func begin(t *testing.T, db *sql.DB, statements ...string) *sql.Tx {
	t.Helper()
	// Not the test's context: ending it would make the driver close the connection.
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, s := range statements {
		if _, err := tx.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return tx
}

// takeMigrationLock holds the migration lock in a session of its own.
const takeMigrationLock = `SELECT pg_advisory_xact_lock(1179534157, 0)`

// waitFor waits until a query that yields an integer yields want.
func waitFor(t *testing.T, db *sql.DB, want int, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got := value[int](t, db, query)
		if got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("got %d, want %d: %s", got, want, query)
		case <-tick.C:
		}
	}
}

// receive waits for a message of one of the test's goroutines.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

// These queries look only at the lock of the current database, because pg_locks shows those of all databases.
const (
	// A migrator that waits polled as its last statement.
	waitingMigrators = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE '/* waits for the migration lock */%'`
	advisoryLocks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	queuedForTable = `SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted
		AND mode = 'AccessExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// createAccounts makes a table with three rows of a time before tokens.
const createAccounts = `CREATE TABLE public.accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
	INSERT INTO public.accounts SELECT i, 100 FROM generate_series(1, 3) AS i`

var accounts = migrations.Table{Schema: "public", Name: "accounts"}

func tokenColumn(t *testing.T, table migrations.Table) *goose.Migration {
	t.Helper()
	m, err := migrations.TokenColumn(tokenVersion, table)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func withColumn(t *testing.T) *migrations.Options {
	t.Helper()
	return &migrations.Options{Also: []*goose.Migration{tokenColumn(t, accounts)}}
}

func up(t *testing.T, db *sql.DB, opts *migrations.Options) []migrations.Migration {
	t.Helper()
	applied, err := migrations.Up(t.Context(), db, opts)
	if err != nil {
		t.Fatalf("Up: %v", err)
	}
	return applied
}

// wantVersions checks that the version table has each version once, and no other.
func wantVersions(t *testing.T, db *sql.DB, want ...int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(),
		`SELECT version_id FROM fencepost.goose_version WHERE is_applied ORDER BY version_id`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var got []int64
	for rows.Next() {
		var v int64
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	want = append([]int64{0}, want...)
	if !equal(got, want) {
		t.Errorf("version table has %v, want %v", got, want)
	}
}

// ownMigrations are the library's own, in the order of versions.
func ownMigrations(t *testing.T, state migrations.State) []migrations.Migration {
	t.Helper()
	names, err := fs.Glob(migrations.FS(), "sql/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("migrations: %v, %v", names, err)
	}
	list := make([]migrations.Migration, 0, len(names))
	for _, name := range names {
		version, err := goose.NumericComponent(path.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, migrations.Migration{
			Version: version, Name: strings.TrimSuffix(path.Base(name), ".sql"), State: state,
		})
	}
	return list
}

// withoutTimes checks that each migration has the time of its record, and returns the list without the times.
func withoutTimes(t *testing.T, list []migrations.Migration) []migrations.Migration {
	t.Helper()
	out := slices.Clone(list)
	for i, m := range out {
		if age := time.Since(m.AppliedAt); age < -time.Minute || age > time.Hour {
			t.Errorf("version %d was applied at %v", m.Version, m.AppliedAt)
		}
		out[i].AppliedAt = time.Time{}
	}
	return out
}

// withOwn returns the library's own versions and then more.
func withOwn(t *testing.T, more ...int64) []int64 {
	t.Helper()
	return append(versions(ownMigrations(t, migrations.Applied)), more...)
}

// lastOwn is the highest of the library's own versions.
func lastOwn(t *testing.T) int64 {
	t.Helper()
	own := withOwn(t)
	return own[len(own)-1]
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func wantTokenColumn(t *testing.T, db *sql.DB) {
	t.Helper()
	const columns = `SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'
		AND table_name = 'accounts' AND column_name = 'last_fencing_token' AND data_type = 'bigint'
		AND is_nullable = 'NO' AND column_default = '0'`
	if n := value[int](t, db, columns); n != 1 {
		t.Errorf("found %d token columns of the right kind, want 1", n)
	}
	const checks = `SELECT count(*) FROM pg_constraint WHERE conrelid = 'public.accounts'::regclass AND contype = 'c'`
	if n := value[int](t, db, checks); n != 1 {
		t.Errorf("found %d checks, want 1", n)
	}
}

// sqlState returns the SQLSTATE of a driver's error in err, or "".
func sqlState(err error) string {
	var e interface {
		error
		SQLState() string
	}
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}
