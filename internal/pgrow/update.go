package pgrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// Update is fence.Update.
func Update(
	ctx context.Context, db pgsession.DB, t pgtable.Table, tok token.Token, key pgtable.Key, set pgtable.Set,
) error {
	if err := errors.Join(tok.Check(), pgtable.CheckWrite(t, key, set), pgsession.ReadyDB(db)); err != nil {
		return err
	}
	return onOne(ctx, db, "update", func(db pgsession.DB) error { return update(ctx, db, t, tok, key, set) })
}

func update(
	ctx context.Context, db pgsession.DB, t pgtable.Table, tok token.Token, key pgtable.Key, set pgtable.Set,
) error {
	w := write{table: t, token: tok, key: key, stored: strictly, of: present}
	more := ""
	if _, isSQL := db.(overSQL); isSQL {
		more = ` AND ` + speaksUTF8
	}
	stmt := updateStatement(t, key, set, int64(tok), strictly, more)
	return w.bare(ctx, db, func() (int64, error) { return send(ctx, db, "update", stmt) })
}

// bare sends a write with a bare token and, if it changed nothing, finds out why.
func (w write) bare(ctx context.Context, db pgsession.DB, send func() (changed int64, err error)) error {
	for range 2 {
		changed, err := send()
		if err != nil || changed > 0 {
			return OfTable(w.table, w.token, err) // nil stays nil
		}
		if over, isSQL := db.(overSQL); isSQL {
			if err := over.checkEncoding(ctx); err != nil {
				return err
			}
		}
		if err := w.explain(ctx, db); err != nil {
			return err
		}
	}
	return Refused(w.table)
}

// onOne runs a write on db: if that is a pool, on one of its connections. Waiting for a connection is not yet writing:
// an error there leaves no doubt about the outcome.
func onOne(ctx context.Context, db pgsession.DB, verb string, write func(pgsession.DB) error) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return write(db)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", pgerr.ErrUnavailable, verb, err)
	}
	defer conn.Release()
	err = pgsession.CheckReady(conn.Conn())
	if err == nil {
		err = write(conn.Conn())
	}
	pgsession.Discard(conn.Conn(), err)
	return err
}

// send sends one statement through db, and returns how many rows it changed.
func send(ctx context.Context, db pgsession.DB, verb string, stmt pgsql.Statement) (int64, error) {
	commits := autocommits(db)
	if conn, ok := db.(*pgx.Conn); ok && commits {
		return autocommit(ctx, conn, verb, stmt, nil)
	}
	tag, err := db.Exec(ctx, stmt.SQL, stmt.Args...)
	return tag.RowsAffected(), pgerr.Interpret(ctx, verb, err, commits)
}

// autocommits reports whether a statement sent through db commits by itself.
func autocommits(db pgsession.DB) bool {
	if over, ok := db.(overSQL); ok {
		return over.autocommits()
	}
	if conn, ok := db.(*pgx.Conn); ok {
		return conn.PgConn().TxStatus() == 'I'
	}
	_, inTx := db.(pgx.Tx)
	return !inTx
}

// Refused is the outcome of a write that nothing forbids but that changed no row.
func Refused(t pgtable.Table) error {
	return fmt.Errorf("%w: a policy or a trigger of %s let no row change", pgerr.ErrRefused, t)
}
