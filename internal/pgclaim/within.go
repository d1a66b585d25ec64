package pgclaim

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/token"
)

// Within is a claim that a guarded transaction makes by itself, with the statements that open it. The claim takes
// effect when that transaction commits. Until then, and after a rollback, others see the fence as it was before.
//
// Invariant: everything that the transaction reads for its work comes in later statements, under READ COMMITTED. The
// claim's statement has waited for all guarded writes under older tokens by then, so no read can miss one.
type Within struct {
	claim    Claim
	label    string
	patience patience
	waits    bool // the claim waits for other transactions

	answer
	busy             bool // not claimed, because the claim would have had to wait
	xid, incarnation string
}

// ErrNotClaimed says that a claim was not made, so its transaction must not go on.
var ErrNotClaimed = errors.New("the claim was not made")

// RaiseWithin makes a claim in a transaction that stays open. begin opens the transaction in one batch: BEGIN at READ
// COMMITTED, and then what Queue queues. It returns the error of Answer once it has read the batch, and rolls the
// transaction back if there is one.
//
// The first claim does not wait for other transactions. If it would have to, begin is called again, and then once more
// whenever only the server's own bound ended the wait.
//
// The errors are those of [Raise], except that none is ErrOutcomeUnknown, because the claim has not been committed. ctx
// bounds the call.
func RaiseWithin(ctx context.Context, c Claim, opts *RaiseOptions, begin func(*Within) error) error {
	if err := c.Check(); err != nil {
		return err
	}
	label, p, err := opts.resolve()
	if err != nil {
		return err
	}
	w := &Within{claim: c, label: label, patience: p}
	return untilAnswered(ctx, c, p, func() (answer, error) {
		err := begin(w)
		if !w.waits && (w.busy || MayWait(err)) && ctx.Err() == nil {
			w.waits, w.busy = true, false
			err = begin(w)
		}
		if err != nil && !errors.Is(err, ErrNotClaimed) {
			return answer{}, err
		}
		return w.answer, nil
	})
}

// MayWait reports whether a claim that waits for nobody was ended by a limit, of its own or of the session.
func MayWait(err error) bool {
	server, answered := pgerr.ServerError(err)
	return answered && (server.Code == codeLockNotAvailable || server.Code == pgerr.CodeQueryCanceled)
}

const codeLockNotAvailable = "55P03"

// The functions are called outside of FROM, which would collect their rows first. Their rows travel as text: see
// columns.
const (
	enterMarkedSQL = `SELECT fencepost.enter_marked($1::text, $2::bigint, $3::uuid, $4::integer)::text`

	claimMarkedSQL = `SELECT fencepost.claim_marked($1::text, $2::bigint, $3::uuid, $4::text, $5::integer)::text`

	// The limits that the session has are kept, because they are the function's, in a setting of the transaction. Their
	// values contain no space. A setting of the session by the same name does not matter.
	withinBoundsSQL = `SELECT pg_catalog.set_config('fencepost.bounds', pg_catalog.concat_ws(' ',
		pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('lock_timeout'),
		pg_catalog.current_setting('transaction_timeout', true)), true),
	pg_catalog.set_config('statement_timeout', $1, true),
	pg_catalog.set_config('lock_timeout', '0', true),
	CASE WHEN pg_catalog.current_setting('transaction_timeout', true) OPERATOR(pg_catalog.<>) '0'
		THEN pg_catalog.set_config('transaction_timeout', '0', true) END`

	// withinEndSQL bounds the transaction's idle time, and puts the limits back. These count from the next statement.
	withinEndSQL = `pg_catalog.set_config('idle_in_transaction_session_timeout', $5::integer::text, true),
	pg_catalog.set_config('tcp_user_timeout', $5::integer::text, true),
	pg_catalog.set_config('statement_timeout', pg_catalog.split_part(o.bounds, ' ', 1), true),
	pg_catalog.set_config('lock_timeout', pg_catalog.split_part(o.bounds, ' ', 2), true),
	CASE WHEN pg_catalog.split_part(o.bounds, ' ', 3) OPERATOR(pg_catalog.<>) ALL (ARRAY['', '0'])
		THEN pg_catalog.set_config('transaction_timeout', pg_catalog.split_part(o.bounds, ' ', 3), true) END`

	withinSQL = `SELECT ROW(c.claimed, c.current, m.xid, m.incarnation, c.refusal)::text,
	CASE WHEN c.claimed THEN fencepost.enter($1::text, $2::bigint, $3::uuid) END,
	` + withinEndSQL + `
	FROM fencepost.claim($1::text, $2::bigint, $3::uuid, $4::text) AS c, fencepost.mark() AS m,
		pg_catalog.current_setting('fencepost.bounds') AS o (bounds)`
)

// Wait lets the first claim wait too. Call it before Queue if what follows in the batch must not run without the claim.
func (w *Within) Wait() { w.waits = true }

// Queue queues the claim, and bounds how long the transaction may be idle. A claim that waits has bounds of its own on
// the server. After it, the session's own limits apply again.
func (w *Within) Queue(ctx context.Context, b *pgx.Batch, maxIdle time.Duration) {
	w.claimed, w.busy = false, false
	sql := claimMarkedSQL
	if w.waits {
		b.Queue(withinBoundsSQL, w.patience.onServer(ctx))
		sql = withinSQL
	}
	b.Queue(sql, w.claim.Resource, int64(w.claim.Token), w.claim.Nonce.Hex(), w.label, int32(maxIdle.Milliseconds())).
		QueryRow(w.scan)
}

// Begin begins the transaction with the claim, as a batch of BEGIN and Queue does, if the claim does not wait and the
// connection is one for pgsession.Direct. If it returns no transaction and no error, send the batch.
func (w *Within) Begin(ctx context.Context, conn *pgx.Conn, maxIdle time.Duration) (pgx.Tx, error) {
	if w.waits || !pgsession.Direct(conn) {
		return nil, nil
	}
	w.claimed, w.busy = false, false
	c := w.claim
	p := pgsession.NewParams(len(c.Resource) + len(w.label) + paramBytes).
		Text(c.Resource).Int(int64(c.Token)).Hex(c.Nonce[:]).Text(w.label).Int(maxIdle.Milliseconds())
	return begun(ctx, conn, claimMarkedSQL, p, w.read)
}

// paramBytes is room for a token, a nonce and a time.
const paramBytes = 64

// begun begins a transaction with a statement, and reads its answer.
func begun(
	ctx context.Context, conn *pgx.Conn, sql string, p *pgsession.Params, read func(answer string) error,
) (pgx.Tx, error) {
	tx, answer, err := pgsession.BeginDirect(ctx, conn, sql, p)
	if err != nil {
		return nil, err
	}
	return tx, read(answer)
}

// scan reads the row of a claim.
func (w *Within) scan(row pgx.Row) error {
	var said string
	var err error
	if w.waits {
		err = row.Scan(&said, nil, nil, nil, nil, nil, nil)
	} else {
		err = row.Scan(&said)
	}
	if err != nil {
		return err
	}
	return w.read(said)
}

// read reads claimed, current, xid, incarnation and refusal.
func (w *Within) read(said string) (err error) {
	var c [5]string
	columns(said, c[:])
	w.refusal = pgerr.ReadRefusal(c[4])
	w.claimed, w.busy, w.xid, w.incarnation = c[0] == "t", c[0] == "", c[2], c[3]
	if !w.busy {
		w.current, err = tokenOf(c[1])
	}
	return err
}

// columns reads a row that PostgreSQL has made a text of. Only its last value may have quotes: there are no texts of
// the caller's among the others. NULL is empty.
func columns(row string, into []string) {
	row = strings.TrimSuffix(strings.TrimPrefix(row, "("), ")")
	last := len(into) - 1
	for i := range into[:last] {
		into[i], row, _ = strings.Cut(row, ",")
	}
	if strings.HasPrefix(row, `"`) {
		row = strings.ReplaceAll(strings.TrimSuffix(row[1:], `"`), `""`, `"`)
		row = strings.ReplaceAll(row, `\\`, `\`)
	}
	into[last] = row
}

func tokenOf(column string) (token.Token, error) {
	n, err := strconv.ParseInt(column, 10, 64)
	return token.Token(n), err
}

// QueueEnterMarked is [QueueEnter] for a batch that begins with BEGIN: it also bounds how long the transaction may be
// idle, and queries its mark. xid and incarnation are set once the batch has been read; incarnation is empty if the
// server has none.
func QueueEnterMarked(b *pgx.Batch, c Claim, maxIdle time.Duration, xid, incarnation *string) {
	b.Queue(enterMarkedSQL, c.Resource, int64(c.Token), c.Nonce.Hex(), int32(maxIdle.Milliseconds())).
		QueryRow(func(row pgx.Row) error {
			var answer string
			err := row.Scan(&answer)
			readMark(answer, xid, incarnation)
			return err
		})
}

// BeginEntered begins a transaction as a batch of BEGIN at READ COMMITTED and QueueEnterMarked does, if the connection
// is one for pgsession.Direct. If it returns no transaction and no error, send the batch.
func BeginEntered(
	ctx context.Context, conn *pgx.Conn, c Claim, maxIdle time.Duration, xid, incarnation *string,
) (pgx.Tx, error) {
	if !pgsession.Direct(conn) {
		return nil, nil
	}
	p := pgsession.NewParams(len(c.Resource) + paramBytes).
		Text(c.Resource).Int(int64(c.Token)).Hex(c.Nonce[:]).Int(maxIdle.Milliseconds())
	return begun(ctx, conn, enterMarkedSQL, p, func(answer string) error {
		readMark(answer, xid, incarnation)
		return nil
	})
}

// readMark reads xid and incarnation.
func readMark(answer string, xid, incarnation *string) {
	var c [2]string
	columns(answer, c[:])
	*xid, *incarnation = c[0], c[1]
}

// Answer returns what fencepost.mark returned, or ErrNotClaimed if the transaction must be rolled back. Call it after
// the batch.
func (w *Within) Answer() (xid, incarnation string, err error) {
	if !w.claimed {
		return "", "", ErrNotClaimed
	}
	return w.xid, w.incarnation, nil
}
