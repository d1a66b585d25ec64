package pgsession

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// ErrStatementGone says that a transaction could not be committed, because it had deallocated the prepared statements
// of its connection. It was rolled back and wrote nothing. The connection's transactions commit without them until they
// have been prepared again.
var ErrStatementGone = errors.New("the transaction has deallocated the statement that commits it")

// commits says how a connection commits a transaction whose id has to be checked.
type commits int

const (
	notPrepared   commits = iota // by a simple query, until the statements have been prepared
	asPrepared                   // by two prepared statements
	asSimpleQuery                // by a simple query, because a transaction has deallocated the statements
)

// CommitName is the name of a prepared COMMIT.
const CommitName = "fencepost_COMMIT"

const commitSQL = "commit"

// checkSQL fails unless $1 is the transaction's id: a LIMIT may not be negative. It needs no privilege, because the
// transaction may have left another role in place (SET LOCAL ROLE), and it looks nothing up on search_path. As a
// simple query, which PostgreSQL parses and plans each time, it takes several times as long.
const checkSQL = `SELECT 1 LIMIT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned()` +
	` OPERATOR(pg_catalog.=) $1::pg_catalog.xid8 THEN 0 ELSE -1 END`

// prepareCommit prepares the two statements, once for each connection. They must be there before the transaction
// begins: after an error nothing can be prepared in it.
func (d *direct) prepareCommit(ctx context.Context, conn *pgx.Conn) error {
	if d.commits != notPrepared {
		return nil
	}
	for _, sql := range []string{checkSQL, commitSQL} {
		if _, err := prepare(ctx, conn, sql); err != nil {
			return err
		}
	}
	d.commits = asPrepared
	return nil
}

// CommitSimply has a connection commit without prepared statements from now on.
func CommitSimply(conn *pgx.Conn) { directOf(conn).commits = asSimpleQuery }

// CommitIf commits the transaction if xid is its id, in one round trip. passed is false if the check failed, or the
// server did not answer it. tag is COMMIT's, if the server has answered that.
//
// If err is nil, PostgreSQL has carried both out. Then it has committed, or has rolled back a transaction that had
// failed before. If err matches [ErrStatementGone], it has rolled back.
func CommitIf(ctx context.Context, conn *pgx.Conn, xid string) (passed bool, tag pgconn.CommandTag, err error) {
	d := directOf(conn)
	if !d.may || d.commits != asPrepared {
		// One simple query: nothing comes between the check and the COMMIT, and a pooler keeps them together.
		tag, err = conn.Exec(ctx, simpleCommit(xid))
		return tag.String() != "", tag, err
	}
	check, err := prepare(ctx, conn, checkSQL)
	if err != nil {
		return false, tag, err
	}
	commit, err := prepare(ctx, conn, commitSQL)
	if err != nil {
		return false, tag, err
	}
	// Without a Sync between them. After an error, PostgreSQL skips everything up to the Sync, COMMIT included.
	var b pgconn.Batch
	b.ExecStatement(check, [][]byte{[]byte(xid)}, nil, nil)
	b.ExecStatement(commit, nil, nil, nil)
	results := conn.PgConn().ExecBatch(ctx, &b)
	for results.NextResult() {
		tag, _ = results.ResultReader().Close() // Close of results returns its error too
	}
	err = results.Close()
	if server, answered := pgerr.ServerError(err); answered && pgerr.StatementGone(server) {
		d.commits = asSimpleQuery
		err = fmt.Errorf("%w: %w", ErrStatementGone, err)
	}
	return tag.String() != "", tag, err
}

// simpleCommit is the text of a simple query that does the same. PostgreSQL does not reach the COMMIT if the check
// fails. xid consists of digits.
func simpleCommit(xid string) string {
	return `SELECT 1 LIMIT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned()` +
		` OPERATOR(pg_catalog.=) '` + xid + `'::pg_catalog.xid8 THEN 0 ELSE -1 END; COMMIT`
}
