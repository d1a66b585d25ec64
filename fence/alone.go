package fence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/token"
)

// guardArgs is how many arguments guarded adds.
const guardArgs = 2

// guarded puts the guard of a claim into a statement that ends in its WHERE and whose first argument is the token:
// a row is changed only once the fence has been found to carry the claim and has been locked, before the row is,
// and before its triggers fire. A row that is not to be changed need not have asked: see explainGuarded.
func (s statement) guarded(c Claim, guard string) statement {
	var r room
	sql := append(append(r[:0], s.sql...), " AND fencepost."+guard+"("...)
	sql = append(appendArg(sql, len(s.args)+1), "::text, $1::bigint, "...)
	sql = append(appendArg(sql, len(s.args)+2), "::uuid)"...)
	return statement{sql: string(sql), args: append(s.args, c.Resource, c.Nonce.Hex())}
}

// claimedAlone is [claimed] for a statement that can carry its guard. It commits by itself, which spares BEGIN,
// COMMIT and the guard's own statement. What it does not decide is decided by a transaction as of claimed:
// no row changed and yet it should have; a default isolation under which the snapshot was too old; a session that is
// read-only by default; a door that had not been told of the guard; a missing privilege, of the table or of the guard.
func claimedAlone(ctx context.Context, conn *pgx.Conn, c Claim, w write, stmt statement) error {
	if err := checkIdle(conn); err != nil {
		return err
	}
	guard := "guard"
	if w.table.Protected {
		guard = "enter"
	}
	alone := stmt.guarded(c, guard)
	tag, err := conn.Exec(ctx, alone.sql, alone.args...)
	switch {
	case err == nil && tag.RowsAffected() > 0:
		return nil
	case err == nil:
		err = w.explainGuarded(ctx, conn, c)
	default:
		err = interpret(ctx, "write", err, true)
	}
	if err == nil || wantsATransaction(err) {
		return claimed(ctx, conn, c, w, stmt, affected)
	}
	return err
}

// explainGuarded is explain with the guard before it: an overtaken writer is told so, also where the row is missing.
func (w write) explainGuarded(ctx context.Context, conn *pgx.Conn, c Claim) error {
	var b pgx.Batch
	QueueGuard(&b, c)
	var stored *token.Token
	var missing error
	look := w.table.look(w.key)
	b.Queue(look.sql, look.args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&stored)
		if errors.Is(err, pgx.ErrNoRows) {
			missing, err = err, nil
		}
		return err
	})
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return interpret(ctx, "look at the row", err, false)
	}
	return w.tell(ctx, stored, missing)
}

// wantsATransaction reports whether a statement failed, with nothing written, for what need not be in the way of a
// transaction, or is told better there.
func wantsATransaction(err error) bool {
	server, answered := serverError(err)
	if !answered {
		return false
	}
	switch server.Code {
	case codeSerializationFailure, codeReadOnly, codeNotEntered, codeInsufficientPrivilege:
		return true
	}
	return false
}
