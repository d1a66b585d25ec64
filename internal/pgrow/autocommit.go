package pgrow

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// guardArgs is how many arguments the guard adds.
const guardArgs = 2

// texts are the forms of a statement that writes one row under a claim.
type texts struct {
	whole        string // for a transaction that is guarded
	guard, enter string // with a guard of their own, which enter also makes known to the trigger of a protected table
}

// textsOf makes the texts of a statement that ends in its WHERE, has this many arguments, of which the first is the
// token, and stamps a column or, with "", none.
func textsOf(sql string, args int, stamps string) texts {
	var r pgsql.Buffer
	return texts{
		whole: pgsql.Builder(r[:0]).Text(sql).Returning(stamps).String(),
		guard: guarded(sql, args, stamps, "guard"),
		enter: guarded(sql, args, stamps, "enter"),
	}
}

// guarded puts a guard into a statement. As a subquery of its own it is evaluated once, before any row is read, even if
// none match: an overtaken writer's statement fails as a whole, triggers for each statement included.
func guarded(text string, args int, stamps, guard string) string {
	var r pgsql.Buffer
	sql := pgsql.Builder(r[:0]).Text(text, " AND (SELECT fencepost.", guard, "(").Arg(args + 1)
	sql = sql.Text("::text, " + stamp + ", ").Arg(args + 2).Text("::uuid))")
	return sql.Returning(stamps).String()
}

// claimedAutocommit is [claimed] for a statement that can carry its guard. It commits by itself, which saves BEGIN,
// COMMIT and the guard's own statement. Cases that it cannot decide are repeated in a transaction as in claimed, whose
// outcome then counts: no row changed although one should have; a default isolation level with too old a snapshot; a
// protection that the guard did not inform; a missing privilege, of the table or of the guard.
//
// args are those of the whole text, with room for the guard's.
func claimedAutocommit(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, w write, t texts, args []any) error {
	if err := pgsession.CheckIdle(conn); err != nil {
		return err
	}
	sql := t.guard
	if w.table.Protected || knowsProtection(conn, w.table) {
		sql = t.enter
	}
	stmt := pgsql.Statement{SQL: sql, Args: append(args, c.Args[0], c.Args[2])}
	changed, err := autocommit(ctx, conn, "write", stmt, nil)
	switch {
	case err == nil && changed > 0:
		return nil
	case err == nil:
		err = w.explain(ctx, conn)
	default:
		err = OfTable(w.table, c.Token, err)
	}
	if err == nil || wantsATransaction(err) {
		refused := err
		err = claimed(ctx, conn, c.Claim, w, pgsql.Statement{SQL: t.whole, Args: args}, affected)
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
		changed, err = sendKnown(ctx, conn, stmt)
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

// sendKnown sends a statement by itself. What it returns is dropped unread: Exec would keep it.
func sendKnown(ctx context.Context, conn *pgx.Conn, stmt pgsql.Statement) (changed int64, err error) {
	rows, err := conn.Query(ctx, stmt.SQL, stmt.Args...)
	if err != nil {
		return 0, err
	}
	rows.Close()
	return rows.CommandTag().RowsAffected(), rows.Err()
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
