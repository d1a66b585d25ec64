package pgsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// readCommitted is explicit, because the database's default may be another level: under READ COMMITTED an UPDATE
// evaluates its WHERE again after it has waited for a row. The access mode is left to the server:
// default_transaction_read_only is how an operator stops all writes, before a cutover for example, and READ WRITE would
// override it.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// Pipeline runs one transaction, from BEGIN to COMMIT, in one round trip. It carries no mark: the server holds all
// replies back until the last, so a mark would be lost with the reply to COMMIT.
func Pipeline(ctx context.Context, conn *pgx.Conn, verb string, queue func(*pgx.Batch)) error {
	var b pgx.Batch
	b.BeginTx(readCommitted)
	queue(&b)
	committed := false
	b.Queue(`COMMIT`).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return pgx.ErrTxCommitRollback
		}
		committed = true
		return nil
	})
	before := Unsynced(conn)
	err := conn.SendBatch(ctx, &b).Close()
	if conn.PgConn().TxStatus() != 'I' && !conn.IsClosed() {
		rollback(ctx, conn)
	}
	// Nothing after the reply to COMMIT, such as a server shutting down, undoes the commit.
	if committed {
		return Waited(conn, verb, before)
	}
	return pgerr.Interpret(ctx, verb, err, !Unprepared(err)) // unprepared, nothing but BEGIN can have been sent
}

// Unprepared reports whether a batch, or a statement of [AskDirect], failed before its statements were sent.
func Unprepared(err error) bool {
	var preparing pgx.ErrPreprocessingBatch
	var before *unsent
	return errors.As(err, &preparing) || errors.As(err, &before)
}

// Waited reports whether a commit waited for its synchronous standby, as far as [Notices] shows. unsynced is the count
// that [Unsynced] returned before the commit was sent.
func Waited(conn *pgx.Conn, verb string, before int) error {
	if Unsynced(conn) == before {
		return nil
	}
	return fmt.Errorf("%w: %s: the server did not wait for its synchronous standby", pgerr.ErrOutcomeUnknown, verb)
}

// rollback frees the connection of a transaction that ended early. It outlives ctx, within its own bound: cancelling it
// would cost the connection.
func rollback(ctx context.Context, conn *pgx.Conn) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// An error closes the connection, which rolls back as well.
	_, _ = conn.Exec(detached, `ROLLBACK`)
}
