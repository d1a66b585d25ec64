package pgclaim

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/token"
)

// Drawing is a claim of the next token that a transaction makes by itself, under an advisory lock, with the statements
// that open it.
type Drawing struct {
	Resource string
	Nonce    token.Nonce
	Label    string
	// Key is that of the advisory lock.
	Key int64
	// Wait is how long the server lets the statement wait for the lock, and for guarded transactions of the resource.
	Wait time.Duration
	// MaxIdle is how long the transaction may be idle.
	MaxIdle time.Duration
}

// Drawn is what a [Drawing] has drawn, once its batch has been read.
type Drawn struct {
	Busy             bool // nothing was drawn, because a drawing that waits for nobody would have had to wait
	Claim            Claim
	XID, Incarnation string // as fencepost.mark returns them
}

// drawLockedSQL takes the lock and then draws and enters: each step needs a value of the one before it, so PostgreSQL
// cannot change their order. Its own snapshot is older than the wait, but the functions are volatile, so each of their
// statements has a later one. See drawSQL about the two claims.
const drawLockedSQL = `
WITH locked AS MATERIALIZED (SELECT pg_catalog.pg_advisory_xact_lock($4::bigint) IS NOT NULL AS taken),
     first AS MATERIALIZED (SELECT c.claimed, c.current FROM locked,
          fencepost.claim(CASE WHEN locked.taken THEN $1::text END, 1, $2::uuid, $3::text) AS c),
     drawn (token) AS MATERIALIZED (SELECT CASE WHEN first.claimed THEN 1
          WHEN first.current < 9223372036854775807 THEN
               (SELECT c.current FROM fencepost.claim($1::text, first.current + 1, $2::uuid, $3::text) AS c
                 WHERE c.claimed)
          END FROM first)
SELECT d.token, CASE WHEN d.token IS NOT NULL THEN fencepost.enter($1::text, d.token, $2::uuid) END,
       (SELECT pg_catalog.concat_ws(' ', m.xid, m.incarnation) FROM fencepost.mark() AS m),
       ` + withinEndSQL + `
  FROM drawn AS d, pg_catalog.current_setting('fencepost.bounds') AS o (bounds)`

// QueueDraw queues the statements after BEGIN at READ COMMITTED: the bounds of the wait, and then the lock, the claim
// of the next token, the guard under it, and the mark. After the wait the session's own limits apply again. The claim
// takes effect when the transaction commits; after a rollback its token is drawn again. The result is set once the
// batch has been read. An error appears then too; [GuardError] interprets it.
//
// Errors before anything is queued: ErrInvalid.
func QueueDraw(b *pgx.Batch, d Drawing) (*Drawn, error) {
	made, err := newDraw(d.Resource, d.Nonce, &RaiseOptions{Label: d.Label})
	if err != nil {
		return nil, err
	}
	drawn := &Drawn{}
	b.Queue(withinBoundsSQL, strconv.FormatInt(d.Wait.Milliseconds(), 10))
	b.Queue(drawLockedSQL, d.Resource, d.Nonce.Hex(), d.Label, d.Key, int32(d.MaxIdle.Milliseconds())).
		QueryRow(func(row pgx.Row) error {
			var mark string
			err := made.scan(lockedRow{Row: row, mark: &mark})
			drawn.Claim = made.claim
			drawn.XID, drawn.Incarnation, _ = strings.Cut(mark, " ")
			return err
		})
	return drawn, nil
}

const drawMarkedSQL = `SELECT fencepost.draw_marked($1::text, $2::uuid, $3::text, $4::bigint, $5::integer)::text`

// BeginDrawn begins a transaction with a drawing that waits for nobody, in one round trip, as a batch of BEGIN at READ
// COMMITTED and QueueDrawNow does, if the connection is one for pgsession.Direct. If it returns no transaction and no
// error, send the batch.
func BeginDrawn(ctx context.Context, conn *pgx.Conn, d Drawing, drawn *Drawn) (pgx.Tx, error) {
	if !pgsession.Direct(conn) {
		return nil, nil
	}
	p := pgsession.NewParams(len(d.Resource) + len(d.Label) + paramBytes).
		Text(d.Resource).Hex(d.Nonce[:]).Text(d.Label).Int(d.Key).Int(d.MaxIdle.Milliseconds())
	return begun(ctx, conn, drawMarkedSQL, p, func(answer string) error { return drawn.read(d, answer) })
}

// QueueDrawNow queues a drawing that waits for nobody, for a batch that begins a transaction.
func QueueDrawNow(b *pgx.Batch, d Drawing, drawn *Drawn) {
	b.Queue(drawMarkedSQL, d.Resource, d.Nonce.Hex(), d.Label, d.Key, int32(d.MaxIdle.Milliseconds())).
		QueryRow(func(row pgx.Row) error {
			var answer string
			if err := row.Scan(&answer); err != nil {
				return err
			}
			return drawn.read(d, answer)
		})
}

// read reads token, xid and incarnation. All are NULL if nothing was drawn.
func (d *Drawn) read(of Drawing, answer string) (err error) {
	var c [3]string
	columns(answer, c[:])
	*d = Drawn{Busy: c[0] == "", XID: c[1], Incarnation: c[2]}
	if !d.Busy {
		d.Claim = Claim{Resource: of.Resource, Nonce: of.Nonce}
		d.Claim.Token, err = tokenOf(c[0])
	}
	return err
}

// lockedRow is a row of drawLockedSQL, whose first column is the token.
type lockedRow struct {
	pgx.Row
	mark *string
}

func (r lockedRow) Scan(dest ...any) error {
	return r.Row.Scan(append(dest, nil, r.mark, nil, nil, nil, nil, nil)...)
}
