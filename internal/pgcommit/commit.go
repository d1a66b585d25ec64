package pgcommit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

// Mark identifies one transaction, even across a crash: the id that the server gave it, and the incarnation of that
// server. With it, [Settle] finds out what became of the transaction if the reply to its COMMIT was lost. The zero Mark
// belongs to no transaction.
type Mark struct {
	XID         string // pg_current_xact_id
	Incarnation string // a uuid; empty if the server has no incarnation yet (see BeginIncarnation)
}

const markSQL = `SELECT xid, coalesce(incarnation::text, '') FROM fencepost.mark()`

// QueueMark queues the query for the mark of the batch's transaction. m is set once the batch has been read; an error
// appears then too.
//
// The mark is useful only if the transaction continues after the batch. If the batch commits as well, PostgreSQL holds
// all replies back until the last, and the mark would be lost with the reply to COMMIT.
func QueueMark(b *pgx.Batch, m *Mark) {
	b.Queue(markSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&m.XID, &m.Incarnation) })
}

// BeginIncarnation gives the server an incarnation if a mark came back without one: after the first migration, and
// after a crash. It commits on its own; conn must not be in a transaction (ErrInvalid). Concurrent calls are safe.
// Other errors: ErrUnavailable; ErrOutcomeUnknown, after which it may be called again. ctx bounds it.
func BeginIncarnation(ctx context.Context, conn *pgx.Conn) error {
	if err := pgsession.CheckIdle(conn); err != nil {
		return err
	}
	err := pgsession.Pipeline(ctx, conn, "begin an incarnation", func(b *pgx.Batch) {
		b.Queue(`SELECT fencepost.begin_incarnation()`)
	})
	return pgerr.NotGranted(err)
}

// Commit is fence.Commit.
func Commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn()
	if err := pgsession.CheckFree(conn); err != nil {
		return err
	}
	before := pgsession.Unsynced(conn)
	if err := pgerr.CommitError(ctx, tx.Commit(ctx)); err != nil {
		return err
	}
	return pgsession.Waited(conn, "commit", before)
}

// CommitMarked is [Commit] of the transaction in which the mark was made, and of no other. If that transaction was
// ended by a COMMIT or ROLLBACK sent as SQL, and another begun, CommitMarked rolls the other back and returns an error
// that matches ErrBroken. Like Commit, it takes one round trip. tx has ended then, though its own methods do not know
// it. After [pgsession.ErrStatementGone] the transaction may be run again.
func CommitMarked(ctx context.Context, tx pgx.Tx, m Mark) error {
	if !isNumber(m.XID) {
		return pgerr.Invalidf("a mark without a transaction id")
	}
	conn := tx.Conn()
	if err := pgsession.CheckFree(conn); err != nil {
		return err
	}
	before := pgsession.Unsynced(conn)
	passed, tag, err := pgsession.CommitIf(ctx, conn, m.XID)
	server, answered := pgerr.ServerError(err)
	switch {
	case tag.String() == "COMMIT": // nothing after it undoes the commit
		return pgsession.Waited(conn, "commit", before)
	case errors.Is(err, pgsession.ErrStatementGone):
		return fmt.Errorf("fencepost: rolled back, and nothing was written: %w", err)
	case answered && server.Code == codeBroken && !passed:
		// This is the check's own error, not one of COMMIT's triggers.
		return fmt.Errorf("%w: %w", ErrBroken, err)
	case answered && server.Code == codeInFailedTransaction, err == nil:
		return fmt.Errorf("fencepost: rolled back: a statement failed, the function returned nil, "+
			"and nothing was written: %w", pgx.ErrTxCommitRollback)
	}
	return pgerr.CommitError(ctx, err)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// ErrBroken says that the guarded transaction was ended before its commit. Anything written until then may be
// committed.
var ErrBroken = fmt.Errorf("%w: the guarded transaction was ended by its own function", pgerr.ErrOutcomeUnknown)

const (
	codeBroken              = "2201W" // invalid_row_count_in_limit_clause
	codeInFailedTransaction = "25P02"
)

// Results of fencepost.settle.
const (
	settledCommitted  = "committed"
	settledAborted    = "aborted"
	settledInProgress = "in progress"
)

// The pauses between two tries of Settle.
const (
	shortestPause = 2 * time.Millisecond
	longestPause  = 250 * time.Millisecond
)

const settleSQL = `SELECT fencepost.settle($1::text, $2::uuid) WHERE ` + pgsql.OnPrimary

// Settle finds out, through another connection, whether the transaction of a mark was committed. Without an error the
// answer is certain, and as durable as a commit of the asking session; false means that the transaction was rolled back
// and wrote nothing. While the transaction is still in progress, or the server cannot be asked, Settle asks again, with
// pauses, until ctx ends.
//
// The error is ErrOutcomeUnknown if the outcome cannot be known. Either ctx ended, for example while only standbys
// answered; or the server that answered is another incarnation than the mark's, because of a crash in between or
// another server behind a pooler.
func Settle(ctx context.Context, db pgsession.Querier, m Mark) (committed bool, err error) {
	if m.XID == "" || m.Incarnation == "" {
		return false, fmt.Errorf("%w: the transaction has no mark", pgerr.ErrOutcomeUnknown)
	}
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		status, err := settle(ctx, db, m)
		switch {
		case err != nil:
			if !errors.Is(err, pgerr.ErrUnavailable) && !pgerr.SafeToRetry(err) {
				return false, fmt.Errorf("%w: %w", pgerr.ErrOutcomeUnknown, err)
			}
		case status == settledCommitted || status == settledAborted:
			return status == settledCommitted, nil
		case status != settledInProgress:
			return false, fmt.Errorf("%w: the server that answered cannot know of transaction %s",
				pgerr.ErrOutcomeUnknown, m.XID)
		default:
			err = fmt.Errorf("transaction %s is in progress", m.XID)
		}
		if !sleep(ctx, pause) {
			//nolint:errorlint // unavailable would say that nothing was written
			return false, fmt.Errorf("%w: %v: %w", pgerr.ErrOutcomeUnknown, err, ctx.Err())
		}
	}
}

// settle asks once. A standby cannot know, but another connection may lead to a server that does.
func settle(ctx context.Context, db pgsession.Querier, m Mark) (status string, err error) {
	err = pgsession.OnConn(ctx, db, "settle", func(db pgsession.Querier) error {
		return pgerr.Interpret(ctx, "settle", db.QueryRow(ctx, settleSQL, m.XID, m.Incarnation).Scan(&status), false)
	})
	return status, err
}

// sleep waits, and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
