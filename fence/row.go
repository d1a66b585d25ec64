package fence

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// DB is what [Update] and [Upsert] write through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DefaultTokenColumn is the column that stores the highest token with which a row was written.
const DefaultTokenColumn = pgtable.DefaultTokenColumn

// Table names a table by its parts. Each part is taken literally and quoted: case matters, and a dot is part of the
// name. A part must not be empty, longer than PostgreSQL's limit of 63 bytes (it would be truncated), other than UTF-8,
// or contain U+0000; otherwise the error is ErrInvalid.
type Table struct {
	// Schema is required, so that search_path cannot matter.
	Schema string
	// Name is the table's name.
	Name string
	// Key lists the columns that identify a row, in the order in which a Key gives their values.
	Key []string
	// Token is the token column. Default DefaultTokenColumn.
	Token string
	// Protected says that the table is protected (fencepost.protect). The functions of this package do not use it; the
	// root package's single-statement writes save a round trip with it.
	Protected bool
}

// TokenColumn returns the name of the token column.
func (t Table) TokenColumn() string { return pgtable.Table(t).TokenColumn() }

// String returns schema and name, quoted.
func (t Table) String() string { return pgtable.Table(t).String() }

// Check returns nil for a table that can be named in SQL and otherwise an error that matches
// ErrInvalid. It does not ask the database whether the table exists.
func (t Table) Check() error { return pgtable.Table(t).Check() }

// Key holds the values of a table's key columns, in their order.
type Key = []any

// Set holds the columns to write and their values.
type Set = map[string]any

// Update writes one row with a bare token, in one statement that compares and stamps it:
//
//	UPDATE … SET …, last_fencing_token = $t WHERE key = $k AND last_fencing_token < $t
//
// It promises that the tokens accepted for a row rise strictly: one accepted write per token and row. It does not check
// the fence. Until a new holder has written the row, an overtaken holder can still write it. [Enter] closes that gap,
// and so does stamping the row first.
//
// It costs one round trip if the row changed. If no row changed, a second statement asks why, because the snapshot of
// the first is older than its wait for the row. The error is then one of these:
//   - ErrNotFound: no such row;
//   - *StaleError: the row carries a higher token;
//   - ErrTokenSpent: the row carries this very token;
//   - ErrRefused: the token is high enough, and the database changed nothing in two tries.
//
// The same statement checks the token that the row has afterwards. If a trigger has put another token there, the error
// is a *StampError, and nothing was written.
//
// Other errors are *TableError if the row's token is NULL; ErrInvalid, before anything is sent; ErrUnavailable; and
// ErrOutcomeUnknown. ctx bounds the call. Update is safe for concurrent use if db is.
func Update(ctx context.Context, db DB, t Table, tok token.Token, key Key, set Set) error {
	return pgrow.Update(ctx, db, pgtable.Table(t), tok, key, set)
}

// Upsert inserts one row with a bare token or, if its key is taken, writes it as [Update] does. It returns which of the
// two it did; inserted is false if err is not nil. The columns that set does not name take their defaults in an
// inserted row, and keep their values in an updated one. The token must be strictly higher than the one stored in the
// row:
//
//	INSERT … ON CONFLICT (key) DO UPDATE SET …, last_fencing_token = $t WHERE last_fencing_token < $t
//
// Only the row fences this write. A deleted row stores no token, so Upsert under a stale token inserts it again. If
// your rows are deleted, use [Enter] and write in that transaction, or use a Table of the root package, whose Upsert
// the fence refuses. Or mark rows as deleted instead of deleting them.
//
// Errors are those of Update, without ErrNotFound. The error is ErrTokenSpent if the row already carries the token.
// Upsert costs one round trip, and a second one if no row changed. ctx bounds the call. Upsert is safe for concurrent
// use if db is.
func Upsert(ctx context.Context, db DB, t Table, tok token.Token, key Key, set Set) (inserted bool, err error) {
	return pgrow.Upsert(ctx, db, pgtable.Table(t), tok, key, set)
}
