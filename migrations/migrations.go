package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"
)

//go:embed bootstrap.sql sql/*.sql
var files embed.FS

// FS returns every SQL file that this package can run: bootstrap.sql and the migrations in sql/.
// Two releases whose files are equal leave equal databases behind.
func FS() fs.FS { return files }

// State is the state of a migration in a database.
type State string

// The states of a migration.
const (
	// Pending is a migration that Up would apply.
	Pending State = "pending"
	// Applied is a migration that the version table records.
	Applied State = "applied"
	// Found is one of the library's own migrations that has no record in the version table although everything that it
	// creates exists in the schema, for example after a restore of the schema alone. Up records it.
	Found State = "found"
	// Partial is one of the library's own migrations that has no record in the version table although part of what it
	// creates exists. Up returns ErrPartial.
	Partial State = "partial"
	// Unknown is an applied migration that neither this release nor Options.Also has. It belongs to a newer release or
	// to another program.
	Unknown State = "unknown"
)

// Migration describes one migration.
type Migration struct {
	// Version orders the migrations. Those below FirstAlso are the library's own.
	Version int64
	// Name is for people. It is the file's name without its extension. The migrations that this package makes for
	// callers' tables and roles have generated names, such as 01000_token_column_billing_invoices. A migration without
	// a file has its version and "go". An Unknown migration has its version and "newer_release" (below FirstAlso) or
	// "also".
	Name string
	// State is the migration's state after the call.
	State State
	// AppliedAt is the time at which the migration was recorded, by the database's clock. Up and Status set it. It is
	// zero if the version table has no record, in what Down returns, and possibly in what Up returns together with an
	// error.
	AppliedAt time.Time
}

// Up applies every pending migration, in the order of versions, each in a transaction of its own. It returns the
// migrations that this call applied, also together with an error. Any number of processes may call it at once: one of
// them applies each migration, and all return nil once none is pending.
//
// Up completes what a restore of the schema alone leaves out. It records the migrations that it finds in the schema,
// and returns them as Found. It repairs what else [Problems] returns, if the role owns the schema.
//
// If nothing is pending and nothing is wrong, Up only reads: it takes no lock and writes nothing. An application's role
// that has been granted fencepost.grant_application may do that too. If a migration is pending, Up as such a role
// returns an error (SQLSTATE 42501) that names the role that has to migrate: the owner of the schema fencepost.
//
// Up needs one connection of db, keeps nothing in the session, and works behind PgBouncer in transaction mode if the
// driver does (pgx: default_query_exec_mode=exec or simple_protocol).
//
// While Up waits for another migrator it holds no transaction, and while it waits for a table it holds no snapshot. So
// CREATE INDEX CONCURRENTLY and similar statements make progress meanwhile.
//
// ctx bounds the whole call, including the wait for another migrator. If a table lock is not granted within three
// seconds, or leads to a deadlock, Up tries again, with a pause in between. After five attempts it returns the error
// (SQLSTATE 55P03 or 40P01). After any error, including one with an unknown outcome, call Up again. If the server turns
// out to be a standby, Up closes the idle connections of db, so that the next call can reach the primary.
func Up(ctx context.Context, db *sql.DB, opts *Options) ([]Migration, error) {
	r, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	applied, err := r.up(ctx)
	leaveStandby(db, err)
	return applied, interpretError(ctx, "migrate up", explain(ctx, db, opts, err))
}

// Down takes down every applied migration above Options.To (default: all), the last applied first, each in a
// transaction of its own. It returns the migrations that this call took down, also together with an error. The schema
// fencepost, the version table in it and the function begin_migration stay. Up after Down works.
//
// It returns ErrTokensRemain if what it would drop is in use, unless Options.Force is set, and ErrUnknownVersion if it
// meets a migration that it does not have. Migrations that it took down before the error stay down. ctx and lock waits
// are as in Up.
func Down(ctx context.Context, db *sql.DB, opts *Options) ([]Migration, error) {
	r, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	reverted, err := r.down(ctx)
	leaveStandby(db, err)
	return reverted, interpretError(ctx, "migrate down", explain(ctx, db, opts, err))
}

// Status returns all migrations, those known here and those applied, in the order of versions. It only reads. In an
// empty database every migration is pending. An application's role may call it, as it may call [Up]. ctx bounds the
// call.
func Status(ctx context.Context, db *sql.DB, opts *Options) ([]Migration, error) {
	r, err := newRunner(db, opts)
	if err != nil {
		return nil, err
	}
	all, err := r.status(ctx)
	return all, interpretError(ctx, "read migration status", explain(ctx, db, opts, err))
}

// Problems returns what Up would repair besides pending migrations, as one line of text per problem. Problems are wrong
// rights in the schema, and a missing secret or missing rules of protected tables, which a restore of the schema alone
// leaves out. It returns none if nothing is wrong, if the migrations have not been applied, and for a role that is not
// the schema's owner. It only reads. ctx bounds the call.
func Problems(ctx context.Context, db *sql.DB) ([]string, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: database is nil", ErrInvalid)
	}
	list, err := problemsNow(ctx, db)
	return list, interpretError(ctx, "look for problems", explain(ctx, db, nil, err))
}
