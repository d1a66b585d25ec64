package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
)

// onProtected measures a guarded UPDATE, pipelined, of a protected table beside the same of one that is not.
func onProtected(ctx context.Context, s Servers) (measure.Comparison, error) {
	c := measure.Comparison{
		Title: fmt.Sprintf(
			"enter and update one column of a row by primary key in one round trip, %d goroutines, each its own rows and claim",
			Workers,
		),
	}
	for _, at := range []struct {
		candidate, table, sql string
		target                float64
	}{
		{"without a trigger", "open", ``, 0},
		{
			"behind fencepost.protect", "protection",
			`SELECT fencepost.protect('bench.protection', 'bench', 'protection:', ARRAY['worker'])`, 0.7,
		},
	} {
		table, err := makeShared(ctx, s, at.table)
		if err != nil {
			return c, err
		}
		claims, err := claimEach(ctx, s, "bench:"+at.table+":")
		if err != nil {
			return c, err
		}
		if at.sql != "" {
			if _, err := s.Pool.Exec(ctx, at.sql); err != nil {
				return c, fmt.Errorf("protect: %w", err)
			}
		}
		update := `UPDATE ` + table.String() + ` SET value = $1, last_fencing_token = $2 WHERE worker = $3 AND id = $4`
		c.Candidates = append(c.Candidates, measure.Candidate{
			Name: "enter + UPDATE " + at.candidate, Target: at.target,
			Worker: func(worker int) func(context.Context) error { return enterAndUpdate(s, claims[worker], update, worker) },
		})
	}
	return c, nil
}

// claimEach claims a resource for each worker.
func claimEach(ctx context.Context, s Servers, prefix string) ([]fence.Claim, error) {
	conn, err := s.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	claims := make([]fence.Claim, Workers)
	for i := range claims {
		claims[i] = fence.Claim{Resource: prefix + strconv.Itoa(i), Token: 1, Nonce: fenceNonce}
		if err := fence.Raise(ctx, conn.Conn(), claims[i], nil); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

func enterAndUpdate(s Servers, c fence.Claim, update string, worker int) func(context.Context) error {
	at := newWalk(worker)
	return func(ctx context.Context) error {
		at.next()
		var b pgx.Batch
		b.Queue(`BEGIN`)
		pgclaim.QueueEnter(&b, c)
		b.Queue(update, strconv.FormatInt(at.pass, 10), int64(c.Token), worker, at.id)
		b.Queue(`COMMIT`)
		return s.Pool.SendBatch(ctx, &b).Close()
	}
}
