package pgclaim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

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

	claimed          bool
	current          token.Token
	xid, incarnation string
}

// ErrNotClaimed says that the fence refused a claim, so its transaction must not go on.
var ErrNotClaimed = errors.New("the fence refused the claim")

// RaiseWithin makes a claim in a transaction that stays open. begin opens the transaction in one batch: BEGIN at READ
// COMMITTED, and then what Queue queues. It returns the error of Answer once it has read the batch, and rolls the
// transaction back if there is one. begin is called again if only the server's own bound ended the wait.
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
	return untilAnswered(ctx, c, p, func() (bool, token.Token, error) {
		w := &Within{claim: c, label: label, patience: p}
		if err := begin(w); err != nil && !errors.Is(err, ErrNotClaimed) {
			return false, 0, err
		}
		return w.claimed, w.current, nil
	})
}

const (
	// The limits that the session has are kept, because they are the function's, in a setting of the transaction. Their
	// values contain no space. A setting of the session by the same name does not matter.
	withinBoundsSQL = `SELECT pg_catalog.set_config('fencepost.bounds', pg_catalog.concat_ws(' ',
		pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('lock_timeout'),
		pg_catalog.current_setting('transaction_timeout', true)), true),
	pg_catalog.set_config('statement_timeout', $1, true),
	pg_catalog.set_config('lock_timeout', '0', true),
	CASE WHEN pg_catalog.current_setting('transaction_timeout', true) OPERATOR(pg_catalog.<>) '0'
		THEN pg_catalog.set_config('transaction_timeout', '0', true) END`

	// A limit that is put back counts from the next statement.
	withinSQL = `SELECT c.claimed, c.current, m.xid, coalesce(m.incarnation::text, ''),
	CASE WHEN c.claimed THEN fencepost.enter($1::text, $2::bigint, $3::uuid) END,
	pg_catalog.set_config('idle_in_transaction_session_timeout', $5, true),
	pg_catalog.set_config('tcp_user_timeout', $5, true),
	pg_catalog.set_config('statement_timeout', pg_catalog.split_part(o.bounds, ' ', 1), true),
	pg_catalog.set_config('lock_timeout', pg_catalog.split_part(o.bounds, ' ', 2), true),
	CASE WHEN pg_catalog.split_part(o.bounds, ' ', 3) OPERATOR(pg_catalog.<>) ALL (ARRAY['', '0'])
		THEN pg_catalog.set_config('transaction_timeout', pg_catalog.split_part(o.bounds, ' ', 3), true) END
	FROM fencepost.claim($1::text, $2::bigint, $3::uuid, $4::text) AS c, fencepost.mark() AS m,
		pg_catalog.current_setting('fencepost.bounds') AS o (bounds)`
)

// Queue queues the claim, and bounds how long the transaction may be idle. The claim's wait has bounds of its own on
// the server. After it, the session's own limits apply again.
func (w *Within) Queue(ctx context.Context, b *pgx.Batch, maxIdle time.Duration) {
	b.Queue(withinBoundsSQL, w.patience.onServer(ctx))
	idle := strconv.FormatInt(maxIdle.Milliseconds(), 10)
	b.Queue(withinSQL, w.claim.Resource, int64(w.claim.Token), w.claim.Nonce.Hex(), w.label, idle).QueryRow(w.scan)
}

func (w *Within) scan(row pgx.Row) error {
	return row.Scan(&w.claimed, &w.current, &w.xid, &w.incarnation, nil, nil, nil, nil, nil, nil)
}

// Verb says in errors what the batch does.
func (w *Within) Verb() string { return "claim " + strconv.Quote(w.claim.Resource) }

// Answer returns what fencepost.mark returned, or ErrNotClaimed if the transaction must be rolled back. Call it after
// the batch.
func (w *Within) Answer() (xid, incarnation string, err error) {
	if !w.claimed {
		return "", "", ErrNotClaimed
	}
	return w.xid, w.incarnation, nil
}
