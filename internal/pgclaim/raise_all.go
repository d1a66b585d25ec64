package pgclaim

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/token"
)

// Raised is the fence's answer to one of several claims.
type Raised struct {
	Claimed bool
	Busy    bool        // nothing was claimed, because another transaction has entered the resource or claims it
	Current token.Token // what the fence carries, or the floor; 0 if there is neither, or if it is busy
}

// claimAllSQL returns NULL twice if all claims were made, as nearly always: their arrays would cost the client more
// than the rest of the reply.
const claimAllSQL = `SELECT CASE WHEN c.every IS NOT TRUE THEN c.claimed END,
		CASE WHEN c.every IS NOT TRUE THEN c.current END
	FROM (SELECT claimed, current, true OPERATOR(pg_catalog.=) ALL (claimed) AS every
		FROM fencepost.claim_all($1::text[], $2::bigint[], $3::text[]::uuid[], $4::text)) AS c`

// MaxTogether bounds the claims of one transaction, because each holds a lock in the server's shared memory. With its
// default settings a server has room for 6,400.
const MaxTogether = 1000

// RaiseAll raises several fences, of different resources, in one round trip and one commit, and returns the answers in
// the order of the claims. It waits for nobody: a claim that would have to wait for a guarded transaction is not made,
// and its answer is Busy. [Raise] waits for it.
//
// Errors, which are about all claims: ErrInvalid, before anything is sent, also for more than MaxTogether claims;
// ErrUnavailable, and nothing was claimed; ErrOutcomeUnknown. ctx bounds the call.
func RaiseAll(ctx context.Context, conn *pgx.Conn, claims []Claim, label string) ([]Raised, error) {
	if n := len(claims); n == 0 || n > MaxTogether {
		return nil, pgerr.Invalidf("%d claims at once, not 1 to %d", n, MaxTogether)
	}
	for _, c := range claims {
		if err := c.Check(); err != nil {
			return nil, err
		}
	}
	label, p, err := (&RaiseOptions{Label: label}).resolve()
	if err != nil {
		return nil, err
	}
	if err := pgsession.CheckIdle(conn); err != nil {
		return nil, err
	}
	var raised func() ([]Raised, error)
	err = pgsession.Pipeline(ctx, conn, fmt.Sprintf("claim of %d resources", len(claims)), func(b *pgx.Batch) {
		b.Queue(claimBoundsSQL, p.onServer(ctx))
		raised = QueueRaiseAll(b, claims, label)
	})
	if err != nil {
		return nil, pgerr.WithEnd(ctx, pgerr.NotGranted(err))
	}
	return raised()
}

// QueueRaiseAll queues the claims of [RaiseAll] for a batch. The answers can be read once the batch has been read; an
// error of the server appears then. They count once the transaction has committed, and hold the resources until then.
func QueueRaiseAll(b *pgx.Batch, claims []Claim, label string) (raised func() ([]Raised, error)) {
	var claimed []*bool
	var current []*int64
	answered := false
	resources, tokens, nonces := arraysOf(claims)
	b.Queue(claimAllSQL, resources, tokens, nonces, label).
		QueryRow(func(row pgx.Row) error {
			err := row.Scan(&claimed, &current)
			answered = err == nil
			return err
		})
	return func() ([]Raised, error) {
		if answered && claimed == nil && current == nil {
			return allClaimed(claims), nil
		}
		if len(claimed) != len(claims) || len(current) != len(claims) {
			return nil, fmt.Errorf("%w: claim_all answered %d of %d claims", pgerr.ErrUnavailable, len(claimed), len(claims))
		}
		all := make([]Raised, len(claims))
		for i := range all {
			if claimed[i] == nil || current[i] == nil {
				all[i].Busy = true
				continue
			}
			all[i] = Raised{Claimed: *claimed[i], Current: token.Token(*current[i])}
		}
		return all, nil
	}
}

func allClaimed(claims []Claim) []Raised {
	all := make([]Raised, len(claims))
	for i, c := range claims {
		all[i] = Raised{Claimed: true, Current: c.Token}
	}
	return all
}

func arraysOf(claims []Claim) (resources []string, tokens []int64, nonces []string) {
	resources, tokens, nonces = make([]string, len(claims)), make([]int64, len(claims)), make([]string, len(claims))
	digits := make([]byte, 0, 32*len(claims))
	for i, c := range claims {
		resources[i], tokens[i] = c.Resource, int64(c.Token)
		digits = hex.AppendEncode(digits, c.Nonce[:])
	}
	all := string(digits) // one string, of which each nonce is a part
	for i := range nonces {
		nonces[i] = all[32*i : 32*i+32]
	}
	return resources, tokens, nonces
}
