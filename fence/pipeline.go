package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// readCommitted is written out, since the database's default may be another: under READ COMMITTED
// an UPDATE looks at its WHERE again after it has waited for a row.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// pipeline runs one transaction, from BEGIN to COMMIT, in one round trip. It carries no mark: the server holds all
// replies back until the last, so a mark would be lost with the reply to COMMIT.
func pipeline(ctx context.Context, conn *pgx.Conn, verb string, queue func(*pgx.Batch)) error {
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
	before := unsynced(conn)
	err := conn.SendBatch(ctx, &b).Close()
	if conn.PgConn().TxStatus() != 'I' && !conn.IsClosed() {
		rollback(ctx, conn)
	}
	// What comes after the answer to COMMIT (a server shutting down) does not undo it.
	if committed {
		return waited(conn, verb, before)
	}
	return interpret(ctx, verb, err, !unprepared(err)) // unprepared, nothing but BEGIN can have been sent
}

// unprepared reports whether a batch failed before its statements were sent.
func unprepared(err error) bool {
	var preparing pgx.ErrPreprocessingBatch
	return errors.As(err, &preparing)
}

// waited says of a commit whether it waited for its synchronous standby, as far as [Notices] tells: unsynced
// returned before when it was sent.
func waited(conn *pgx.Conn, verb string, before int) error {
	if unsynced(conn) == before {
		return nil
	}
	return fmt.Errorf("%w: %s: the server did not wait for its synchronous standby", ErrOutcomeUnknown, verb)
}

// rollback frees the connection of a transaction that ended early. It outlives ctx, within a bound
// of its own: cancelling it would cost the connection.
func rollback(ctx context.Context, conn *pgx.Conn) {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	// An error closes the connection, which rolls back as well.
	_, _ = conn.Exec(detached, `ROLLBACK`)
}
