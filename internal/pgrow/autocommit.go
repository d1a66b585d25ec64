package pgrow

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// guardArgs is how many arguments guarded adds.
const guardArgs = 2

// guarded puts the guard of a claim into a statement that ends in its WHERE and whose first argument is the token. As a
// subquery of its own it is evaluated once, before any row is read, even if none match: an overtaken writer's statement
// fails as a whole, triggers for each statement included.
func guarded(s pgsql.Statement, c pgclaim.Claim, guard string) pgsql.Statement {
	var r pgsql.Buffer
	sql := pgsql.Builder(r[:0]).Text(s.SQL, " AND (SELECT fencepost.", guard, "(")
	sql = sql.Arg(len(s.Args) + 1).Text("::text, " + stamp + ", ")
	sql = sql.Arg(len(s.Args) + 2).Text("::uuid))").Returning(s.Stamps)
	return pgsql.Statement{SQL: sql.String(), Args: append(s.Args, c.Resource, c.Nonce.Hex())}
}

// claimedAutocommit is [claimed] for a statement that can carry its guard. It commits by itself, which saves BEGIN,
// COMMIT and the guard's own statement. Cases that it cannot decide are repeated in a transaction as in claimed, whose
// outcome then counts: no row changed although one should have; a default isolation level with too old a snapshot; a
// protection that the guard did not inform; a missing privilege, of the table or of the guard.
func claimedAutocommit(ctx context.Context, conn *pgx.Conn, c pgclaim.Claim, w write, stmt pgsql.Statement) error {
	if err := pgsession.CheckIdle(conn); err != nil {
		return err
	}
	guard := "guard"
	if w.table.Protected || knowsProtection(conn, w.table) {
		guard = "enter"
	}
	changed, err := autocommit(ctx, conn, "write", guarded(stmt, c, guard), nil)
	err = OfTable(w.table, c.Token, err)
	switch {
	case err == nil && changed > 0:
		return nil
	case err == nil:
		err = w.explain(ctx, conn)
	}
	if err == nil || wantsATransaction(err) {
		refused := err
		err = claimed(ctx, conn, c, w, stmt.Whole(), affected)
		if server, ok := pgerr.ServerError(refused); ok && server.Code == pgerr.CodeNotEntered && err == nil {
			learnProtection(conn, w.table)
		}
	}
	return err
}

// tableSet is the set of tables, by schema and name, whose protection a connection has met. A table that has since lost
// its protection stays in it until the connection ends: its guard then informs nobody.
type tableSet map[[2]string]struct{}

const protectionsKey = "fencepost.protections"

// knowsProtection reports whether a connection has met a protection that its caller did not declare: a table may gain
// one while a program runs.
func knowsProtection(conn *pgx.Conn, t pgtable.Table) bool {
	protections, _ := conn.PgConn().CustomData()[protectionsKey].(tableSet)
	_, ok := protections[[2]string{t.Schema, t.Name}]
	return ok
}

// learnProtection saves later writes of this connection a refusal and a transaction each.
func learnProtection(conn *pgx.Conn, t pgtable.Table) {
	data := conn.PgConn().CustomData()
	protections, ok := data[protectionsKey].(tableSet)
	if !ok {
		protections = tableSet{}
		data[protectionsKey] = protections
	}
	protections[[2]string{t.Schema, t.Name}] = struct{}{}
}

// queueFunc queues a statement and returns a pointer to the number of rows that it will have changed.
type queueFunc func(*pgx.Batch, pgsql.Statement) *int64

// autocommit sends one statement that commits by itself, and returns how many rows it changed. A text that is new to
// the connection is sent as a batch. This distinguishes an error of its preparation, when it had changed nothing, from
// a later one. A statement with its own queue, which may read what it returns, is sent as a batch too.
func autocommit(
	ctx context.Context, conn *pgx.Conn, verb string, stmt pgsql.Statement, queue queueFunc,
) (changed int64, err error) {
	before := pgsession.Unsynced(conn)
	known := knownTexts(conn)
	isKnown := known.has(stmt.SQL)
	if isKnown && queue == nil {
		var tag pgconn.CommandTag
		tag, err = conn.Exec(ctx, stmt.SQL, stmt.Args...)
		changed = tag.RowsAffected()
	} else {
		if queue == nil {
			queue = affected
		}
		var b pgx.Batch
		affected := queue(&b, stmt)
		err = conn.SendBatch(ctx, &b).Close() // the commit comes after the statement's own reply
		changed = *affected
	}
	if err != nil {
		known.clear() // pgx prepares a text again after an error
		return 0, pgerr.Interpret(ctx, verb, err, !pgsession.Unprepared(err))
	}
	if !isKnown {
		known.add(stmt.SQL)
	}
	return changed, pgsession.Waited(conn, verb, before)
}

// textSet is the set of texts that a connection has run, and so has prepared if it prepares any. A text in it by
// mistake can make a known outcome unknown, never the other way round.
type textSet map[string]struct{}

// knownTexts returns the texts of a connection, which are dropped with it.
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

// add drops the other texts from time to time, as pgx's own cache does.
func (t textSet) add(sql string) {
	const most = 256
	if len(t) >= most {
		t.clear()
	}
	t[sql] = struct{}{}
}

func (t textSet) clear() { clear(t) }

// wantsATransaction reports whether a statement failed, with nothing written, for a reason that may not affect a
// transaction or that a transaction reports better.
func wantsATransaction(err error) bool {
	server, answered := pgerr.ServerError(err)
	if !answered {
		return false
	}
	switch server.Code {
	case pgerr.CodeSerializationFailure, pgerr.CodeNotEntered, pgerr.CodeInsufficientPrivilege:
		return true
	}
	return false
}
