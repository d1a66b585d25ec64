package pgrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// write describes a write of one row, for finding out why it changed nothing.
type write struct {
	table  pgtable.Table
	token  token.Token
	key    pgtable.Key
	stored comparison
	of     existence
}

// existence is what a write expects of its row.
type existence uint8

const (
	present existence = iota // update, claim, delete
	absent                   // insert
	either                   // upsert
)

// explain asks why a write changed no row. nil means that it would now: the caller tries once more. The query is a
// statement of its own, because the write's snapshot is older than its wait for the row.
func (w write) explain(ctx context.Context, db pgsession.DB) error {
	look := lookStatement(w.table, w.key)
	var stored *token.Token
	err := db.QueryRow(ctx, look.SQL, look.Args...).Scan(&stored)
	var current token.Token
	if stored != nil {
		current = *stored
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows) && w.of == present:
		return fmt.Errorf("%w in %s", pgerr.ErrNotFound, w.table)
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return pgerr.Interpret(ctx, "look at the row", err, false)
	case w.of == absent:
		return fmt.Errorf("%w in %s", pgerr.ErrExists, w.table)
	case stored == nil:
		return pgtable.Unfit(w.table, "token column %q of this row is NULL; make it NOT NULL DEFAULT 0",
			w.table.TokenColumn())
	case current > w.token:
		return &pgerr.StaleError{Resource: w.table.String(), Token: w.token, Current: current, Row: true}
	case current == w.token && w.stored == strictly:
		return fmt.Errorf("%w: token %d in %s", pgerr.ErrTokenSpent, w.token, w.table)
	}
	return nil
}

// StampRow stamps the claim's token on one row and reads it, in one transaction and one round trip. From then on the
// row itself refuses every lower token, bare ones included. read is called with the rows that carry the requested
// columns: one row, or none.
//
// An error of read is returned unchanged, after the row has been stamped and that has been committed: the stamp does
// not depend on what this program makes of the row.
//
// Errors are those of [Writer.Update]. conn must not be in a transaction.
func StampRow(
	ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, t pgtable.Table, key pgtable.Key,
	columns []string, read func(pgx.Rows) error,
) error {
	if err := errors.Join(c.Check(), pgtable.CheckWrite(t, key, nil), pgtable.CheckNames(columns)); err != nil {
		return err
	}
	stmt := stampStatement(t, c, key, columns)
	return claimed(ctx, conn, c, under(t, c, key, present), stmt, func(b *pgx.Batch, stmt pgsql.Statement) *int64 {
		var changed int64
		b.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
			err := read(rows)
			rows.Close()
			changed = rows.CommandTag().RowsAffected()
			return errors.Join(err, rows.Err())
		})
		return &changed
	})
}

// stampStatement stamps a row and returns columns of it.
func stampStatement(t pgtable.Table, c pgclaim.Claim, key pgtable.Key, columns []string) pgsql.Statement {
	var r pgsql.Buffer
	sql := appendUpdate(r[:0], t, nil, withinClaim).ReturningStamped("", t.TokenColumn(), columns)
	return pgsql.Statement{SQL: sql.String(), Args: append([]any{int64(c.Token)}, key...)}
}

// InsertClaimed inserts one row under a claim and stamps it, with guard and write in one transaction and one round
// trip. Columns that are neither in the key nor in set get their defaults.
//
// ErrExists: the key is taken, whatever token the row carries; nothing was changed. If another unique constraint is
// violated, the error is PostgreSQL's own (SQLSTATE 23505). ErrRefused: a trigger prevented the insert, or this user
// may not see the row with this key. Other errors are those of [Writer.Update]. conn must not be in a transaction.
func InsertClaimed(
	ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, set pgtable.Set,
) error {
	if err := errors.Join(c.Check(), checkNew(t, key, set)); err != nil {
		return err
	}
	return claimed(ctx, conn, c, under(t, c, key, absent), insertStatement(t, key, set, int64(c.Token)), affected)
}

// under returns the write of a row that belongs to a claim.
func under(t pgtable.Table, c pgclaim.Claim, key pgtable.Key, of existence) write {
	return write{table: t, token: c.Token, key: key, stored: withinClaim, of: of}
}

// affected queues a statement and records how many rows it changed.
func affected(b *pgx.Batch, stmt pgsql.Statement) *int64 {
	var changed int64
	b.Queue(stmt.SQL, stmt.Args...).Exec(func(tag pgconn.CommandTag) error {
		changed = tag.RowsAffected()
		return nil
	})
	return &changed
}

// claimed runs a guarded write and, if it changed nothing, finds out why.
func claimed(
	ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, w write, stmt pgsql.Statement, queue queueFunc,
) error {
	if err := pgsession.CheckIdle(conn); err != nil {
		return err
	}
	for range 2 {
		var changed *int64
		var guardStood *bool
		err := pgsession.Pipeline(ctx, conn, "write", func(b *pgx.Batch) {
			guardStood = queueGuard(b, c)
			changed = queue(b, stmt)
		})
		if err != nil {
			return refusalOf(w.table, OfTable(w.table, c.Token, err), *guardStood)
		}
		if *changed > 0 {
			return nil
		}
		if err := w.explain(ctx, conn); err != nil {
			return err
		}
	}
	return Refused(w.table)
}

// queueGuard is [QueueEnter], and reports, once the batch has been read, whether the guard held.
func queueGuard(b *pgx.Batch, c pgclaim.Claim) *bool {
	var stood bool
	b.Queue(pgclaim.EnterText, pgclaim.EnterArgs(c)...).Exec(func(pgconn.CommandTag) error {
		stood = true
		return nil
	})
	return &stood
}

// refusalOf is [refusal] for a statement that was sent behind its guard. PostgreSQL refuses a table and the guard with
// the same SQLSTATE, and names neither in a machine-readable form. The number of statements that succeeded
// distinguishes them.
func refusalOf(t pgtable.Table, err error, guardStood bool) error {
	var unprepared pgx.ErrPreprocessingBatch
	if errors.As(err, &unprepared) {
		guardStood = unprepared.SQL() != pgclaim.EnterText
	}
	if !guardStood {
		return pgerr.NotGranted(err)
	}
	return refusal(t, err)
}

// refusal marks PostgreSQL's own refusal as one of the table. It leaves all other errors unchanged.
func refusal(t pgtable.Table, err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == pgerr.CodeInsufficientPrivilege {
		return fmt.Errorf("%w: %s: %w", pgerr.ErrRefused, t, err)
	}
	return err
}
