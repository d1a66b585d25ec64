package pgclaim

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/token"
)

// drawSQL claims the token one above the fence's. The first claim, of token 1, is refused by any existing fence. It has
// passed the gate by then and keeps others out until the transaction ends, so the second claim, if needed, finds the
// fence as the first one left it. No token in the result means that the fence carries the highest possible token.
const drawSQL = `
WITH first AS MATERIALIZED (SELECT c.claimed, c.current FROM fencepost.claim($1::text, 1, $2::uuid, $3::text) AS c)
SELECT CASE WHEN first.claimed THEN 1
            WHEN first.current < 9223372036854775807 THEN
                 (SELECT c.current FROM fencepost.claim($1::text, first.current + 1, $2::uuid, $3::text) AS c
                   WHERE c.claimed)
            END
  FROM first`

// Draw is fence.Draw.
func Draw(ctx context.Context, conn *pgx.Conn, resource string, nonce token.Nonce, opts *RaiseOptions) (Claim, error) {
	d, err := newDraw(resource, nonce, opts)
	if err != nil {
		return Claim{}, err
	}
	if err := pgsession.CheckIdle(conn); err != nil {
		return Claim{}, err
	}
	for {
		err := d.commit(ctx, conn)
		switch {
		case err == nil:
			return d.claim, nil
		case !pgerr.TimedOut(err) || ctx.Err() != nil || d.patience.over():
			return d.claim, pgerr.WithEnd(ctx, err)
		case AwaitEnd(ctx):
			return d.claim, fmt.Errorf("%w: %w", pgerr.WithEnd(ctx, err), ErrWaited)
		}
		// The server's bound ended it, not the caller's.
	}
}

// draw is a claim without its token.
type draw struct {
	claim    Claim
	label    string
	patience patience
}

func newDraw(resource string, nonce token.Nonce, opts *RaiseOptions) (*draw, error) {
	label, p, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	d := &draw{claim: Claim{Resource: resource, Token: 1, Nonce: nonce}, label: label, patience: p}
	return d, d.claim.Check()
}

func (d *draw) commit(ctx context.Context, conn *pgx.Conn) error {
	return pgerr.NotGranted(pgsession.Pipeline(ctx, conn, "draw "+strconv.Quote(d.claim.Resource), func(b *pgx.Batch) {
		b.Queue(claimBoundsSQL, d.patience.onServer(ctx))
		b.Queue(drawSQL, d.args()...).QueryRow(d.scan)
	}))
}

func (d *draw) args() []any { return []any{d.claim.Resource, d.claim.Nonce.Hex(), d.label} }

func (d *draw) scan(row pgx.Row) error {
	var tok *int64
	if err := row.Scan(&tok); err != nil {
		return err
	}
	if tok == nil {
		return &pgerr.StaleError{Resource: d.claim.Resource, Token: token.Max, Current: token.Max}
	}
	d.claim.Token = token.Token(*tok)
	return nil
}

// enterDrawnSQL draws and enters in one statement.
const enterDrawnSQL = `
WITH drawn AS MATERIALIZED (` + drawSQL + `)
SELECT token, CASE WHEN token IS NOT NULL THEN fencepost.enter($1::text, token, $2::uuid)::text END
  FROM drawn AS drawn (token)`

// QueueDraw queues the statements with which a guarded transaction makes its own claim: the claim of the next token,
// made in the transaction itself, and the guard under it. The claim takes effect when the transaction commits; after a
// rollback its token is drawn again. The claim is set once the batch has been read. An error appears then too;
// [GuardError] interprets it. QueueDraw's statements wait for other guarded transactions of the resource for as long as
// the session's statement_timeout allows.
//
// Errors before anything is queued: ErrInvalid.
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

// entered is a row whose second column is ignored.
type entered struct{ pgx.Row }

func (e entered) Scan(dest ...any) error { return e.Row.Scan(append(dest, nil)...) }
