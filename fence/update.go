package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/token"
)

// DB is what [Update] writes through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Update writes one row with a bare token, in one statement that compares and stamps it:
//
//	UPDATE … SET …, last_fencing_token = $t WHERE key = $k AND last_fencing_token < $t
//
// It promises that the tokens accepted for a row rise strictly: one accepted write per token and
// row. It does not ask the fence, so until a new holder has touched the row, an overtaken one can
// still write there; [Guard] closes that gap, and so does stamping the row first ([ClaimRow]).
//
// Applied, it costs one round trip. When no row changed, a second statement asks why (the first
// one's snapshot is older than its wait for the row):
//   - ErrNotFound: no such row;
//   - *StaleError: the row carries a higher token;
//   - ErrTokenSpent: the row carries this very token;
//   - ErrRefused: the token is good enough, and twice the database changed nothing.
//
// Other errors: ErrInvalid before anything is sent, ErrUnavailable, ErrOutcomeUnknown. ctx bounds the
// call. It is safe for concurrent use as far as db is.
func Update(ctx context.Context, db DB, t Table, tok token.Token, key Key, set Set) error {
	if err := errors.Join(tok.Check(), t.checkWrite(key, set)); err != nil {
		return err
	}
	if pool, ok := db.(*pgxpool.Pool); ok {
		// Waiting for a connection is not yet writing: what ends it leaves no doubt.
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("%w: update: %w", ErrUnavailable, err)
		}
		defer conn.Release()
		db = conn.Conn()
	}
	w := write{table: t, token: tok, key: key, stored: strictly}
	stmt := t.update(key, set, int64(tok), strictly)
	commits := commitsAlone(db)
	for range 2 {
		tag, err := db.Exec(ctx, stmt.sql, stmt.args...)
		if err != nil {
			return interpret(ctx, "update", err, commits)
		}
		if tag.RowsAffected() > 0 {
			return nil
		}
		if err := w.explain(ctx, db); err != nil {
			return err
		}
	}
	return refused(t)
}

// commitsAlone reports whether a statement sent through db commits by itself.
func commitsAlone(db DB) bool {
	if conn, ok := db.(*pgx.Conn); ok {
		return conn.PgConn().TxStatus() == 'I'
	}
	_, inTx := db.(pgx.Tx)
	return !inTx
}

// write is a row write that changed nothing.
type write struct {
	table  Table
	token  token.Token
	key    Key
	stored comparison
}

// explain asks why a write changed no row. nil means that by now it would: the caller tries once more.
func (w write) explain(ctx context.Context, db DB) error {
	look := w.table.look(w.key)
	var stored *token.Token
	err := db.QueryRow(ctx, look.sql, look.args...).Scan(&stored)
	var current token.Token
	if stored != nil {
		current = *stored
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w in %s", ErrNotFound, w.table)
	case err != nil:
		return interpret(ctx, "look at the row", err, false)
	case stored == nil:
		return w.table.unfit("token column %q of this row is NULL; make it NOT NULL DEFAULT 0", w.table.TokenColumn())
	case current > w.token:
		return &StaleError{Resource: w.table.String(), Token: w.token, Current: current, Row: true}
	case current == w.token && w.stored == strictly:
		return fmt.Errorf("%w: token %d in %s", ErrTokenSpent, w.token, w.table)
	}
	return nil
}

func refused(t Table) error {
	return fmt.Errorf("%w: a policy or a trigger of %s let no row change", ErrRefused, t)
}

// UpdateClaimed writes one row under a claim, guard and write in one transaction and one round trip.
// Unlike [Update] it may write the same row again under the same claim.
//
// Errors are those of Update, without ErrTokenSpent; a *StaleError comes from the fence, or, with Row
// set, from a row that is ahead of its own fence. conn must not be in a transaction.
func UpdateClaimed(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, set Set) error {
	var changed int64
	return claimed(ctx, conn, c, t, key, set, func(b *pgx.Batch, stmt statement) *int64 {
		b.Queue(stmt.sql, stmt.args...).Exec(func(tag pgconn.CommandTag) error {
			changed = tag.RowsAffected()
			return nil
		})
		return &changed
	})
}

// ClaimRow stamps the claim's token on one row and reads it, in one transaction and one round trip:
// from then on the row itself refuses every lower token, bare ones included. read is called with the rows
// that carry the columns asked for: one row, or none.
//
// Errors are those of [UpdateClaimed]. conn must not be in a transaction.
func ClaimRow(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, columns []string, read func(pgx.Rows) error) error {
	for _, column := range columns {
		if err := checkName(column); err != nil {
			return err
		}
	}
	var changed int64
	return claimed(ctx, conn, c, t, key, nil, func(b *pgx.Batch, stmt statement) *int64 {
		b.Queue(stmt.sql+" RETURNING "+quoteAll(columns), stmt.args...).Query(func(rows pgx.Rows) error {
			err := read(rows)
			rows.Close()
			changed = rows.CommandTag().RowsAffected()
			return errors.Join(err, rows.Err())
		})
		return &changed
	})
}

// claimed runs a guarded write and tells why it changed nothing, where it did not.
func claimed(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, set Set, queue func(*pgx.Batch, statement) *int64) error {
	if err := errors.Join(c.Check(), t.checkWrite(key, set)); err != nil {
		return err
	}
	if err := checkIdle(conn); err != nil {
		return err
	}
	w := write{table: t, token: c.Token, key: key, stored: withinClaim}
	stmt := t.update(key, set, int64(c.Token), withinClaim)
	for range 2 {
		var changed *int64
		err := pipeline(ctx, conn, "write", func(b *pgx.Batch) {
			QueueGuard(b, c)
			changed = queue(b, stmt)
		})
		if err != nil {
			return err
		}
		if *changed > 0 {
			return nil
		}
		if err := w.explain(ctx, conn); err != nil {
			return err
		}
	}
	return refused(t)
}

func quoteAll(columns []string) string {
	text := ""
	for i, column := range columns {
		if i > 0 {
			text += ", "
		}
		text += quote(column)
	}
	return text
}
