package fence

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// guardArgs is how many arguments guarded adds.
const guardArgs = 2

// guarded puts the guard of a claim into a statement that ends in its WHERE and whose first argument is the token. As a
// subquery of its own it is asked once, before any row is looked at, and also where there is none: an overtaken writer's
// statement fails as a whole, triggers for each statement included.
func (s statement) guarded(c Claim, guard string) statement {
	var r room
	sql := append(append(r[:0], s.sql...), " AND (SELECT fencepost."+guard+"("...)
	sql = append(appendArg(sql, len(s.args)+1), "::text, $1::bigint, "...)
	sql = append(appendArg(sql, len(s.args)+2), "::uuid))"...)
	return statement{sql: string(sql), args: append(s.args, c.Resource, c.Nonce.Hex())}
}

// claimedAlone is [claimed] for a statement that can carry its guard. It commits by itself, which spares BEGIN,
// COMMIT and the guard's own statement. What it does not decide is decided by a transaction as of claimed, whose outcome counts then:
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
	changed, err := alone(ctx, conn, "write", stmt.guarded(c, guard))
	switch {
	case err == nil && changed > 0:
		return nil
	case err == nil:
		err = w.explain(ctx, conn)
	}
	if err == nil || wantsATransaction(err) {
		return claimed(ctx, conn, c, w, stmt, affected)
	}
	return err
}

// alone sends one statement that commits by itself, and returns how many rows it changed. A text that is new to the connection
// goes as a batch, which tells what befell it while it was being prepared, when it had changed nothing, from what befell it later.
func alone(ctx context.Context, conn *pgx.Conn, verb string, stmt statement) (changed int64, err error) {
	before := unsynced(conn)
	known := knownTexts(conn)
	isKnown := known.has(stmt.sql)
	if isKnown {
		var tag pgconn.CommandTag
		tag, err = conn.Exec(ctx, stmt.sql, stmt.args...)
		changed = tag.RowsAffected()
	} else {
		var b pgx.Batch
		affected := affected(&b, stmt)
		err = conn.SendBatch(ctx, &b).Close() // the commit comes after the statement's own answer
		changed = *affected
	}
	if err != nil {
		known.clear() // pgx prepares a text anew after an error
		return 0, interpret(ctx, verb, err, !unprepared(err))
	}
	if !isKnown {
		known.add(stmt.sql)
	}
	return changed, waited(conn, verb, before)
}

// textSet is the texts that a connection has run, and so has prepared where it prepares any. A text that is here by mistake
// can make an outcome unknown that was none, never the other way round.
type textSet map[string]struct{}

// knownTexts returns those of a connection, which goes with it.
func knownTexts(conn *pgx.Conn) textSet {
	const key = "fencepost.texts"
	data := conn.PgConn().CustomData()
	known, ok := data[key].(textSet)
	if !ok {
		known = textSet{}
		data[key] = known
	}
	return known
}

func (t textSet) has(sql string) bool {
	_, ok := t[sql]
	return ok
}

// add forgets the others from time to time, as pgx's own cache does.
func (t textSet) add(sql string) {
	const most = 256
	if len(t) >= most {
		t.clear()
	}
	t[sql] = struct{}{}
}

func (t textSet) clear() { clear(t) }

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
