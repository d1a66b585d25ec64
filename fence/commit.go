package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Mark tells one transaction from every other, also after a crash: the id that the server gave it, and
// the life of the server that gave it. With it, [Settle] finds out what became of the transaction
// where the reply to its COMMIT was lost. The zero Mark is of no transaction.
type Mark struct {
	XID  string // pg_current_xact_id
	Life string // a uuid; empty where the server has not been given a life yet (see BeginLife)
}

const markSQL = `SELECT xid, coalesce(life::text, '') FROM fencepost.mark()`

// QueueMark queues the question for the mark of the batch's transaction. The mark is there once the batch has
// been read; an error shows there too.
//
// It is of use only where the transaction goes on after the batch: of a batch that commits as well, PostgreSQL
// holds all replies back until the last, so that the mark would be lost with the reply to COMMIT.
func QueueMark(b *pgx.Batch) *Mark {
	var m Mark
	b.Queue(markSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&m.XID, &m.Life) })
	return &m
}

// BeginLife gives the server a life, where a mark came back without one: after the first migration, and after a
// crash. It commits on its own; conn must not be in a transaction (ErrInvalid). Any number may call it at once.
// Errors otherwise: ErrUnavailable, ErrOutcomeUnknown, after which it may be called again. ctx bounds it.
func BeginLife(ctx context.Context, conn *pgx.Conn) error {
	if err := checkIdle(conn); err != nil {
		return err
	}
	return notGranted(pipeline(ctx, conn, "begin a life", func(b *pgx.Batch) { b.Queue(`SELECT fencepost.begin_life()`) }))
}

// Commit commits tx and says what came of it: nil for committed, as durably as the session asks for; an error for a
// commit that was answered by a rollback; ErrOutcomeUnknown where the connection ended in between, and where
// the server did not wait for its synchronous standby, if [Notices] has been wired in; otherwise the
// error of whatever failed at COMMIT, after which nothing is written. Where rows or batch results of tx are open still,
// it is ErrInvalid, nothing is sent, and tx is to be rolled back. ctx bounds it.
func Commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn()
	if err := checkFree(conn); err != nil {
		return err
	}
	before := unsynced(conn)
	if err := CommitError(ctx, tx.Commit(ctx)); err != nil {
		return err
	}
	return waited(conn, "commit", before)
}

// CommitMarked is [Commit] of the transaction that the mark was made in, and of no other: where that was ended in
// between, by COMMIT or ROLLBACK sent as SQL, and another begun, the other is rolled back and the error matches
// ErrBroken. It takes one round trip, as Commit does. tx is at its end then, though its own methods do not know it.
func CommitMarked(ctx context.Context, tx pgx.Tx, m Mark) error {
	if !isNumber(m.XID) {
		return invalidf("a mark without a transaction id")
	}
	conn := tx.Conn()
	if err := checkFree(conn); err != nil {
		return err
	}
	before := unsynced(conn)
	// One simple query: nothing comes between the question and the COMMIT, and a pooler keeps them together.
	results, err := conn.PgConn().Exec(ctx, `SELECT fencepost.unbroken('`+m.XID+`'); COMMIT`).ReadAll()
	committed := len(results) == 2 && results[1].CommandTag.String() == "COMMIT"
	server, answered := serverError(err)
	switch {
	case committed: // what comes after that does not undo it
		return waited(conn, "commit", before)
	case answered && server.Code == codeBroken:
		return fmt.Errorf("%w: %w", ErrBroken, err)
	case answered && server.Code == codeInFailedTransaction, err == nil:
		return fmt.Errorf("commit: %w", pgx.ErrTxCommitRollback)
	}
	return CommitError(ctx, err)
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// ErrBroken says that the guarded transaction was ended before its commit. What was written until then may be committed.
var ErrBroken = fmt.Errorf("%w: the guarded transaction was ended by its own function", ErrOutcomeUnknown)

const (
	codeBroken              = "ZF006"
	codeInFailedTransaction = "25P02"
)

// What fencepost.settle answers.
const (
	settledCommitted  = "committed"
	settledAborted    = "aborted"
	settledInProgress = "in progress"
)

// The pauses between two questions of Settle.
const (
	shortestPause = 2 * time.Millisecond
	longestPause  = 250 * time.Millisecond
)

// Settle finds out whether the transaction of a mark was committed, through another connection than its
// own. Without an error the answer is certain, and as durable as a commit of the asking session; false means
// that it was rolled back and nothing of it was written. While the transaction is still in progress, and
// while the server cannot be asked, it asks again, with pauses, until ctx ends.
//
// The error is ErrOutcomeUnknown where that cannot be known: ctx ended, or whoever answered lives another life
// than the mark's (a crash in between, a standby, another server behind a pooler).
func Settle(ctx context.Context, db Querier, m Mark) (committed bool, err error) {
	if m.XID == "" || m.Life == "" {
		return false, fmt.Errorf("%w: the transaction has no mark", ErrOutcomeUnknown)
	}
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		var status string
		err := db.QueryRow(ctx, `SELECT fencepost.settle($1::text, $2::uuid)`, m.XID, m.Life).Scan(&status)
		switch {
		case err != nil:
			err = interpret(ctx, "settle", err, false)
			if !errors.Is(err, ErrUnavailable) && !SafeToRetry(err) {
				return false, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
			}
		case status == settledCommitted || status == settledAborted:
			return status == settledCommitted, nil
		case status != settledInProgress:
			return false, fmt.Errorf("%w: the server that answered cannot know of transaction %s", ErrOutcomeUnknown, m.XID)
		default:
			err = fmt.Errorf("transaction %s is in progress", m.XID)
		}
		if !sleep(ctx, pause) {
			return false, fmt.Errorf("%w: %v: %w", ErrOutcomeUnknown, err, ctx.Err()) //nolint:errorlint // unavailable would say that nothing was written
		}
	}
}

// sleep waits, and tells whether ctx has not ended before.
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
