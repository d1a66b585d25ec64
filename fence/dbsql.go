package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// SQLTx is what [GuardSQL] guards: a *sql.Tx, or what wraps one (an ORM's or a helper library's
// transaction). A *sql.DB and a *sql.Conn do not fit: a guard on a statement that commits by
// itself would guard nothing.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// SQLDB is what [UpdateSQL] writes through: a *sql.DB, a *sql.Conn or a *sql.Tx.
type SQLDB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// SQLBeginner is what [RaiseSQL] claims through: a *sql.DB or a *sql.Conn.
type SQLBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// GuardSQL is [Guard] for a transaction of database/sql, with the same contract and the same
// errors, whichever driver carries it: pgx's or lib/pq, for two. What COMMIT then answers is
// told by [CommitError].
func GuardSQL(ctx context.Context, tx SQLTx, c Claim) error {
	if err := c.Check(); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, enterSQL, c.enterArgs()...)
	return interpretOwn(ctx, "guard", err)
}

// UpdateSQL is [Update] for database/sql, with the same contract and the same errors.
//
// On a pool it takes one connection and keeps to it. database/sql repeats a statement on another
// connection when the driver calls the first one bad, and lib/pq says so also of a connection
// that ended after the statement was sent; so an UPDATE that may have been carried out would be
// sent again, and its second answer be taken for its first. Here it is ErrOutcomeUnknown, as is
// every bad connection of a statement that commits by itself. A wrapper that hides the pool
// (without its Conn method) hides the repetition too: hand in what it wraps.
func UpdateSQL(ctx context.Context, db SQLDB, t Table, tok token.Token, key Key, set Set) error {
	if err := errors.Join(tok.Check(), t.checkWrite(key, set)); err != nil {
		return err
	}
	if pool, ok := db.(interface {
		Conn(ctx context.Context) (*sql.Conn, error)
	}); ok {
		// Waiting for a connection is not yet writing: what ends it leaves no doubt.
		conn, err := pool.Conn(ctx)
		if err != nil {
			return fmt.Errorf("%w: update: %w", ErrUnavailable, err)
		}
		defer func() { _ = conn.Close() }() // gives it back to the pool, or says that it has gone
		db = conn
	}
	// The driver may find out that ctx has ended and call that a bad connection.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: update: %w", ErrUnavailable, err)
	}
	return Update(ctx, overSQL{db}, t, tok, key, set)
}

// RaiseSQL is [Raise] for database/sql: it makes a claim in a READ COMMITTED transaction of its
// own, and commits it. It serves writers that draw their tokens elsewhere; leases of this library
// are claimed by their store. Making the same claim again is nil again, so after
// ErrOutcomeUnknown it may simply be made once more.
//
// Errors are those of Raise, with one gap: database/sql has no way to hear the server's warning
// that a commit may not last (a wait for a synchronous standby that was cancelled). Where
// synchronous standbys matter, use Raise with [Notices].
func RaiseSQL(ctx context.Context, db SQLBeginner, c Claim, opts *RaiseOptions) error {
	var label string
	if opts != nil {
		label = opts.Label
	}
	if err := c.Check(); err != nil {
		return err
	}
	if !isText(label) {
		return invalidf("the label is not UTF-8 text without U+0000")
	}
	return untilAnswered(ctx, c, func() (bool, token.Token, error) { return raiseSQL(ctx, db, c, label) })
}

func raiseSQL(ctx context.Context, db SQLBeginner, c Claim, label string) (claimed bool, current token.Token, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, 0, interpret(ctx, "claim", err, false)
	}
	defer func() { _ = tx.Rollback() }() // without effect once committed
	// database/sql cannot ask for it with BEGIN, and the database's default may be READ ONLY. Once a query has run it
	// would be too late.
	if _, err := tx.ExecContext(ctx, `SET TRANSACTION READ WRITE`); err != nil {
		return false, 0, interpret(ctx, "claim", err, false)
	}
	if _, err := tx.ExecContext(ctx, claimBoundsSQL, waitOnServer(ctx)); err != nil {
		return false, 0, interpret(ctx, "claim", err, false)
	}
	err = tx.QueryRowContext(ctx, claimSQL, c.Resource, int64(c.Token), c.Nonce.Hex(), label).Scan(&claimed, &current)
	if err != nil {
		return false, 0, interpretOwn(ctx, "claim", err)
	}
	return claimed, current, CommitError(ctx, tx.Commit())
}

// overSQL lets the code written for pgx run over database/sql.
type overSQL struct{ db SQLDB }

func (o overSQL) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	result, err := o.db.ExecContext(ctx, query, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows, err := result.RowsAffected()
	return pgconn.NewCommandTag(fmt.Sprintf("UPDATE %d", rows)), err
}

func (o overSQL) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return overRow{o.db.QueryRowContext(ctx, query, args...)}
}

// commitsAlone reports whether a statement commits by itself. A *sql.Conn counts as such even if
// BEGIN was sent on it by hand: unknown is then a word too many, and never a false one.
func (o overSQL) commitsAlone() bool {
	_, inTx := o.db.(SQLTx)
	return !inTx
}

type overRow struct{ row *sql.Row }

func (o overRow) Scan(dest ...any) error {
	err := o.row.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return pgx.ErrNoRows
	}
	return err
}
