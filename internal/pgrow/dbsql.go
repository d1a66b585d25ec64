package pgrow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// UpdateSQL is fence.UpdateSQL.
func UpdateSQL(
	ctx context.Context, db pgsession.SQLDB, t pgtable.Table, tok token.Token, key pgtable.Key, set pgtable.Set,
) error {
	if err := errors.Join(tok.Check(), pgtable.CheckWrite(t, key, set)); err != nil {
		return err
	}
	return onOneSQL(ctx, db, "update", func(db pgsession.DB) error { return update(ctx, db, t, tok, key, set) })
}

// UpsertSQL is fence.UpsertSQL.
func UpsertSQL(
	ctx context.Context, db pgsession.SQLDB, t pgtable.Table, tok token.Token, key pgtable.Key, set pgtable.Set,
) (inserted bool, err error) {
	if err := errors.Join(tok.Check(), checkNew(t, key, set)); err != nil {
		return false, err
	}
	err = onOneSQL(ctx, db, "upsert", func(db pgsession.DB) error {
		inserted, err = upsert(ctx, db, t, tok, key, set)
		return err
	})
	return inserted && err == nil, err
}

// onOneSQL runs a write on db: if that is a pool, on one of its connections, and on that alone (see fence.UpdateSQL).
func onOneSQL(ctx context.Context, db pgsession.SQLDB, verb string, write func(pgsession.DB) error) error {
	pool, ok := db.(pgsession.SQLPool)
	if !ok {
		return whileOpen(ctx, verb, func() error { return write(overSQL{db}) })
	}
	// Waiting for a connection is not yet writing: an error there leaves no doubt about the outcome.
	conn, err := pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", pgerr.ErrUnavailable, verb, err)
	}
	defer func() { _ = conn.Close() }() // returns it to the pool, or reports that it is gone
	err = whileOpen(ctx, verb, func() error { return write(overSQL{conn}) })
	pgsession.DiscardSQL(conn, err)
	return err
}

// whileOpen runs a write unless ctx has ended. The driver may notice that as well, and call it a bad connection.
func whileOpen(ctx context.Context, verb string, write func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %s: %w", pgerr.ErrUnavailable, verb, err)
	}
	return write()
}

// overSQL lets the code written for pgx run over database/sql.
type overSQL struct{ db pgsession.SQLDB }

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

// speaksUTF8 keeps a statement from naming another row than intended. It asks the server for what a pgx connection
// reports (see checkReady) and database/sql hides.
const speaksUTF8 = `pg_catalog.pg_client_encoding() OPERATOR(pg_catalog.=) 'UTF8'::pg_catalog.name`

// checkEncoding reports whether the encoding was the reason that no row changed.
func (o overSQL) checkEncoding(ctx context.Context) error {
	var encoding string
	if err := o.QueryRow(ctx, `SELECT pg_catalog.pg_client_encoding()`).Scan(&encoding); err != nil {
		return pgerr.Interpret(ctx, "update", err, false)
	}
	if encoding != "UTF8" {
		return pgerr.Invalidf("the session's client_encoding is %s, and names are UTF-8: "+
			"connect with client_encoding=UTF8", encoding)
	}
	return nil
}

// autocommits reports whether a statement commits by itself. A *sql.Conn counts as such even if BEGIN was sent on it by
// hand: an outcome may then be called unknown needlessly, but never falsely known.
func (o overSQL) autocommits() bool {
	_, inTx := o.db.(pgsession.SQLTx)
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
