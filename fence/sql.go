package fence

import (
	"context"
	"database/sql"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// SQLTx is what [EnterSQL] guards: a *sql.Tx, or a type that wraps one (an ORM's or a helper library's transaction). A
// *sql.DB and a *sql.Conn do not implement it, because a guard in an autocommit statement would guard nothing.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// SQLDB is what [UpdateSQL] and [UpsertSQL] write through: a *sql.DB, a *sql.Conn or a *sql.Tx.
type SQLDB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQLBeginner is what [RaiseSQL] claims through: a *sql.DB or a *sql.Conn.
type SQLBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// EnterSQL is [Enter] for a transaction of database/sql, with the same contract and the same errors. It works with any
// driver, pgx's and lib/pq for instance. Use [CommitError] for the error of the COMMIT. The transaction's connection
// goes back to its pool, even if it leads to a standby: see [DiscardSQL].
func EnterSQL(ctx context.Context, tx SQLTx, c Claim) error { return pgclaim.EnterSQL(ctx, tx, c) }

// RaiseSQL is [Raise] for database/sql: it makes a claim in a READ COMMITTED transaction of its own, and commits it. It
// is for writers that get their tokens elsewhere; a Store claims the tokens of its own leases. Making the same claim
// again returns nil again, so after ErrOutcomeUnknown the claim may simply be made again.
//
// Errors are those of Raise, with one gap: database/sql has no way to receive the server's warning that a commit may
// not last (a cancelled wait for a synchronous standby). If synchronous standbys matter, use Raise with [Notices].
func RaiseSQL(ctx context.Context, db SQLBeginner, c Claim, opts *RaiseOptions) error {
	return pgclaim.RaiseSQL(ctx, db, c, (*pgclaim.RaiseOptions)(opts))
}

// UpdateSQL is [Update] for database/sql, with the same contract and the same errors.
//
// On a pool it uses one connection for the whole call. database/sql repeats a statement on another connection if the
// driver reports the first one as bad. lib/pq does that even for a connection that ended after the statement was sent.
// An UPDATE that may have been carried out would then be sent again, and its second answer would be mistaken for its
// first. UpdateSQL returns ErrOutcomeUnknown instead, for every bad connection of an autocommit statement. A wrapper
// that hides the pool (it has no Conn method) hides the repetition too: pass the pool that it wraps.
func UpdateSQL(ctx context.Context, db SQLDB, t Table, tok token.Token, key Key, set Set) error {
	return pgrow.UpdateSQL(ctx, db, pgtable.Table(t), tok, key, set)
}

// UpsertSQL is [Upsert] for database/sql, with the same contract and the same errors. What [UpdateSQL] says of pools
// holds for it.
func UpsertSQL(ctx context.Context, db SQLDB, t Table, tok token.Token, key Key, set Set) (inserted bool, err error) {
	return pgrow.UpsertSQL(ctx, db, pgtable.Table(t), tok, key, set)
}

// DiscardSQL is [Discard] for a connection of database/sql, whose pool replaces it. The driver does not tell whether a
// server is a standby, so DiscardSQL asks a server that refuses to write. [UpdateSQL], [UpsertSQL] and [RaiseSQL] call
// it themselves for a connection that they take from a pool. After an error of [EnterSQL], the code that opened the
// transaction calls it, on a connection of its own, once the transaction has been rolled back.
func DiscardSQL(conn *sql.Conn, err error) { pgsession.DiscardSQL(conn, err) }
