package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// write is a write of one row, for the question why it changed nothing.
type write struct {
	table  Table
	token  token.Token
	key    Key
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

// explain asks why a write changed no row. nil means that by now it would: the caller tries once more. The
// question is a statement of its own, since the write's snapshot is older than its wait for the row.
func (w write) explain(ctx context.Context, db DB) error {
	look := w.table.look(w.key)
	var stored *token.Token
	err := db.QueryRow(ctx, look.sql, look.args...).Scan(&stored)
	var current token.Token
	if stored != nil {
		current = *stored
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows) && w.of == present:
		return fmt.Errorf("%w in %s", ErrNotFound, w.table)
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return interpret(ctx, "look at the row", err, false)
	case w.of == absent:
		return fmt.Errorf("%w in %s", ErrExists, w.table)
	case stored == nil:
		return w.table.unfit("token column %q of this row is NULL; make it NOT NULL DEFAULT 0", w.table.TokenColumn())
	case current > w.token:
		return &StaleError{Resource: w.table.String(), Token: w.token, Current: current, Row: true}
	case current == w.token && w.stored == strictly:
		return fmt.Errorf("%w: token %d in %s", ErrTokenSpent, w.token, w.table)
	}
	return nil
}

// UpdateClaimed writes one row under a claim, guard and write in one statement and one round trip.
// Unlike [Update] it may write the same row again under the same claim.
//
// Errors are those of Update, without ErrTokenSpent; a *StaleError comes from the fence, or, with Row
// set, from a row that is ahead of its own fence. ErrRefused is also what PostgreSQL's own refusal
// (SQLSTATE 42501: a policy, or a missing privilege on the table) matches; where it is fencepost that this role may
// not use, the error is ErrUnavailable and says so. conn must not be in a transaction.
func UpdateClaimed(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, set Set) error {
	if err := errors.Join(c.Check(), t.checkWrite(key, set)); err != nil {
		return err
	}
	return claimedAlone(ctx, conn, c, t.under(c, key, present), t.update(key, set, int64(c.Token), withinClaim))
}

// ClaimRow stamps the claim's token on one row and reads it, in one transaction and one round trip:
// from then on the row itself refuses every lower token, bare ones included. read is called with the rows
// that carry the columns asked for: one row, or none.
//
// An error of read comes back as it is, after the row has been stamped and that has been committed: the stamp does not
// depend on what this program makes of the row.
//
// Errors are those of [UpdateClaimed]. conn must not be in a transaction.
func ClaimRow(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, columns []string, read func(pgx.Rows) error) error {
	if err := errors.Join(c.Check(), t.checkWrite(key, nil), checkNames(columns)); err != nil {
		return err
	}
	stmt := t.update(key, nil, int64(c.Token), withinClaim)
	stmt.sql += " RETURNING " + quoteAll(columns)
	return claimed(ctx, conn, c, t.under(c, key, present), stmt, func(b *pgx.Batch, stmt statement) *int64 {
		var changed int64
		b.Queue(stmt.sql, stmt.args...).Query(func(rows pgx.Rows) error {
			err := read(rows)
			rows.Close()
			changed = rows.CommandTag().RowsAffected()
			return errors.Join(err, rows.Err())
		})
		return &changed
	})
}

// InsertClaimed inserts one row under a claim and stamps it, guard and write in one transaction and one round
// trip. Columns that are neither in the key nor in set take their defaults.
//
// ErrExists: the key is taken, whatever token the row carries; nothing was changed. Where another unique
// constraint is violated, the error is PostgreSQL's own (SQLSTATE 23505). ErrRefused: a trigger let no row in, or
// the row with this key is one that this user may not see. Other errors are those of [UpdateClaimed]. conn must
// not be in a transaction.
func InsertClaimed(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, set Set) error {
	if err := errors.Join(c.Check(), t.checkNew(key, set)); err != nil {
		return err
	}
	return claimed(ctx, conn, c, t.under(c, key, absent), t.insert(key, set, int64(c.Token)), affected)
}

// UpsertClaimed inserts one row under a claim or, where its key is taken, writes it, guard and write in
// one transaction and one round trip. What is compared is the token that the row there carries, never the
// one proposed; a row that has been deleted carries none, and there the guard alone refuses the overtaken:
// a fence outlives its rows.
//
// Errors are those of [UpdateClaimed] without ErrNotFound. conn must not be in a transaction.
func UpsertClaimed(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key, set Set) error {
	if err := errors.Join(c.Check(), t.checkNew(key, set)); err != nil {
		return err
	}
	return claimed(ctx, conn, c, t.under(c, key, either), t.upsert(key, set, int64(c.Token)), affected)
}

// DeleteClaimed deletes one row under a claim, guard and write in one statement and one round trip. The
// fence stays, and goes on refusing overtaken claims for the key.
//
// Errors are those of [UpdateClaimed]. conn must not be in a transaction.
func DeleteClaimed(ctx context.Context, conn *pgx.Conn, c Claim, t Table, key Key) error {
	if err := errors.Join(c.Check(), t.checkWrite(key, nil)); err != nil {
		return err
	}
	return claimedAlone(ctx, conn, c, t.under(c, key, present), t.remove(key, int64(c.Token)))
}

// under is the write of a row that goes with a claim.
func (t Table) under(c Claim, key Key, of existence) write {
	return write{table: t, token: c.Token, key: key, stored: withinClaim, of: of}
}

// affected queues a statement and keeps how many rows it changed.
func affected(b *pgx.Batch, stmt statement) *int64 {
	var changed int64
	b.Queue(stmt.sql, stmt.args...).Exec(func(tag pgconn.CommandTag) error {
		changed = tag.RowsAffected()
		return nil
	})
	return &changed
}

// claimed runs a guarded write and tells why it changed nothing, where it did not.
func claimed(ctx context.Context, conn *pgx.Conn, c Claim, w write, stmt statement, queue func(*pgx.Batch, statement) *int64) error {
	if err := checkIdle(conn); err != nil {
		return err
	}
	for range 2 {
		var changed *int64
		var guardStood *bool
		err := pipeline(ctx, conn, "write", func(b *pgx.Batch) {
			guardStood = queueGuard(b, c)
			changed = queue(b, stmt)
		})
		if err != nil {
			return refusalOf(w.table, err, *guardStood)
		}
		if *changed > 0 {
			return nil
		}
		if err := w.explain(ctx, conn); err != nil {
			return err
		}
	}
	return refused(w.table)
}

// queueGuard is [QueueGuard], and tells, once the batch has been read, whether the guard stood.
func queueGuard(b *pgx.Batch, c Claim) *bool {
	var stood bool
	b.Queue(enterSQL, c.enterArgs()...).Exec(func(pgconn.CommandTag) error {
		stood = true
		return nil
	})
	return &stood
}

// refusalOf is [refusal] for a statement that travelled behind its guard. PostgreSQL refuses a table and the guard with the
// same SQLSTATE, and names neither in a form for programs; how far the batch came tells them apart.
func refusalOf(t Table, err error, guardStood bool) error {
	var unprepared pgx.ErrPreprocessingBatch
	if errors.As(err, &unprepared) {
		guardStood = unprepared.SQL() != enterSQL
	}
	if !guardStood {
		return notGranted(err)
	}
	return refusal(t, err)
}

// refusal says of PostgreSQL's own refusal that it is the table's. Everything else stays as it is.
func refusal(t Table, err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == codeInsufficientPrivilege {
		return fmt.Errorf("%w: %s: %w", ErrRefused, t, err)
	}
	return err
}

func checkNames(columns []string) error {
	for _, column := range columns {
		if err := checkName(column); err != nil {
			return err
		}
	}
	return nil
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
