package migrations

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"path"
	"strings"
	"time"
)

//go:embed bootstrap.sql sql/*.sql
var files embed.FS

// FS returns every SQL file that this package can run: bootstrap.sql and the migrations in sql/.
// Two releases whose files are equal leave equal databases behind.
func FS() fs.FS { return files }

// State says how a migration stands in a database.
type State string

// The states of a migration.
const (
	// Pending is a migration that Up would apply.
	Pending State = "pending"
	// Applied is a migration that stands in the version table.
	Applied State = "applied"
	// Unknown is an applied migration that this release does not have and Options.Also does not
	// name: a newer release's, or another program's own.
	Unknown State = "unknown"
)

// Migration describes one migration.
type Migration struct {
	// Version orders the migrations. Those below FirstAlso are the library's own.
	Version int64
	// Name is the file's name without its extension; empty for a migration that has no file.
	Name string
	// State is how it stands after the call.
	State State
	// AppliedAt is the database's time of recording it. Set by Status alone, zero while pending.
	AppliedAt time.Time
}

// Up applies every pending migration, in the order of versions, each in a transaction of its own,
// and returns those that this call applied, also beside an error. Any number of processes may call
// it at once: each migration is applied by one of them, and all return nil when none is left.
//
// Where nothing is pending it reads the version table and returns: no lock, nothing written. It
// needs one connection of db, keeps nothing in the session, and works behind PgBouncer in
// transaction mode when the driver does (pgx: default_query_exec_mode=exec or simple_protocol).
//
// ctx bounds everything, the wait for another migrator too. A table lock that is not granted within
// three seconds is tried for five times with pauses between, then the error (SQLSTATE 55P03) is
// returned. After any error, one with an unknown outcome included, calling Up again is the remedy.
func Up(ctx context.Context, db *sql.DB, opts *Options) ([]Migration, error) {
	r, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	applied, err := r.up(ctx)
	return applied, interpretError(ctx, "migrate up", err)
}

// Down takes down every applied migration above Options.To (default: all), the last applied first,
// each in a transaction of its own, and returns those that this call took down, also beside an
// error. The schema fencepost, the version table in it and the function begin_migration stay; Up
// after Down works.
//
// It returns ErrTokensRemain where a table still carries tokens, unless Options.Force, and
// ErrUnknownVersion where it meets a migration it does not have. What was taken down before stays
// so. ctx and lock waits are as in Up.
func Down(ctx context.Context, db *sql.DB, opts *Options) ([]Migration, error) {
	r, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	reverted, err := r.down(ctx)
	return reverted, interpretError(ctx, "migrate down", err)
}

// Status returns all migrations, those known here and those applied, in the order of versions. It
// only reads, and takes an empty database for one with everything pending. ctx bounds it.
func Status(ctx context.Context, db *sql.DB, opts *Options) ([]Migration, error) {
	r, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	all, err := r.status(ctx)
	return all, interpretError(ctx, "read migration status", err)
}

// nameOf returns the name of a migration from the path of its file, which may be empty.
func nameOf(source string) string {
	if source == "" {
		return ""
	}
	base := path.Base(source)
	return strings.TrimSuffix(base, path.Ext(base))
}
