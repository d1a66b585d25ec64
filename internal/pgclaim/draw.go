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
