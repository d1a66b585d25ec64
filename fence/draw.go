package fence

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/token"
)

// drawSQL claims one above what the fence carries. The first claim, of token 1, is refused by any fence that stands; it has
// passed the gate by then, and keeps others out until the transaction ends, so that the second one, where it is needed,
// finds the fence as the first one left it. No token: the fence carries the highest there is.
const drawSQL = `
WITH first AS MATERIALIZED (SELECT c.claimed, c.current FROM fencepost.claim($1::text, 1, $2::uuid, $3::text) AS c)
SELECT CASE WHEN first.claimed THEN 1
            WHEN first.current < 9223372036854775807 THEN
                 (SELECT c.current FROM fencepost.claim($1::text, first.current + 1, $2::uuid, $3::text) AS c WHERE c.claimed)
            END
  FROM first`

// Draw makes a claim of the token that comes next: it raises the fence of resource to one above what it carries, in a
// transaction of its own, commits it, and returns the claim. It is for grants that do not number themselves, and
// waits as [Raise] does. Calls at the same time get different tokens.
//
// conn is as with Raise. After ErrOutcomeUnknown the token may or may not have been used up; another call draws the next.
// Errors otherwise: ErrInvalid, a *StaleError where the fence carries the highest token there is, ErrUnavailable.
func Draw(ctx context.Context, conn *pgx.Conn, resource string, nonce token.Nonce, opts *RaiseOptions) (Claim, error) {
	d, err := newDraw(resource, nonce, opts)
	if err != nil {
		return Claim{}, err
	}
	if err := checkIdle(conn); err != nil {
		return Claim{}, err
	}
	for {
		err := d.commit(ctx, conn)
		if err == nil || !timedOut(err) || ctx.Err() != nil {
			return d.claim, err
		}
		// The server's bound, not the caller's.
	}
}

// draw is a claim without its token.
type draw struct {
	claim Claim
	label string
}

func newDraw(resource string, nonce token.Nonce, opts *RaiseOptions) (*draw, error) {
	d := &draw{claim: Claim{Resource: resource, Token: 1, Nonce: nonce}}
	if opts != nil {
		d.label = opts.Label
	}
	if !isText(d.label) {
		return nil, invalidf("the label is not UTF-8 text without U+0000")
	}
	return d, d.claim.Check()
}

func (d *draw) commit(ctx context.Context, conn *pgx.Conn) error {
	before := warnings(conn)
	err := notGranted(pipeline(ctx, conn, "draw", func(b *pgx.Batch) {
		b.Queue(claimBoundsSQL, waitOnServer(ctx))
		b.Queue(drawSQL, d.args()...).QueryRow(d.scan)
	}))
	if err == nil && warnings(conn) != before {
		err = fmt.Errorf("%w: draw: the server warned that it may not last", ErrOutcomeUnknown)
	}
	return err
}

func (d *draw) args() []any { return []any{d.claim.Resource, d.claim.Nonce.Hex(), d.label} }

func (d *draw) scan(row pgx.Row) error {
	var tok *int64
	if err := row.Scan(&tok); err != nil {
		return err
	}
	if tok == nil {
		return &StaleError{Resource: d.claim.Resource, Token: token.Max, Current: token.Max}
	}
	d.claim.Token = token.Token(*tok)
	return nil
}

// enterDrawnSQL draws and enters in one statement.
const enterDrawnSQL = `
WITH drawn AS MATERIALIZED (` + drawSQL + `) SELECT token, CASE WHEN token IS NOT NULL THEN fencepost.enter($1::text, token, $2::uuid)::text END
  FROM drawn AS drawn (token)`

// QueueDraw queues what makes a guarded transaction of one that holds its own claim: the claim of the token that comes next,
// made in the transaction itself, and the guard under it. The claim counts once the transaction commits; after a
// rollback its token is drawn again. The claim is there once the batch has been read; an error shows there too, and is told apart by
// [GuardError]. It waits for other guarded transactions of the resource for as long as the session's statement_timeout lets it.
//
// Errors at once: ErrInvalid.
func QueueDraw(b *pgx.Batch, resource string, nonce token.Nonce, opts *RaiseOptions) (*Claim, error) {
	d, err := newDraw(resource, nonce, opts)
	if err != nil {
		return nil, err
	}
	b.Queue(enterDrawnSQL, d.args()...).QueryRow(d.scanEntered)
	return &d.claim, nil
}

func (d *draw) scanEntered(row pgx.Row) error {
	return d.scan(entered{row})
}

// entered is a row with a second column that says nothing.
type entered struct{ pgx.Row }

func (e entered) Scan(dest ...any) error { return e.Row.Scan(append(dest, nil)...) }
