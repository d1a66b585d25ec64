package library

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/token"
)

const (
	// fewFences is how many there are on the database that growth is compared with.
	fewFences = 1000
	// notSlower is the rate that many fences should leave of that of few: a call may take 1.2 times as long.
	notSlower = 1 / 1.2
)

// fenceNonce is that of the fences made for the purpose.
var fenceNonce = token.Nonce{1}

// claimsOfBatch measures claims, each of a fence drawn at random, among many fences and among few.
func claimsOfBatch(ctx context.Context, s Servers) (measure.Comparison, error) {
	return growth(ctx, s, "claim", func(worker int, pool *pgxpool.Pool, fences int) func(context.Context) error {
		tokens := map[int]token.Token{}
		return func(ctx context.Context) error {
			i := worker + Workers*rand.IntN(fences/Workers)
			tokens[i] = max(tokens[i], 1) + 1
			return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
				c := fence.Claim{Resource: fenceName("claim", i), Token: tokens[i], Nonce: fenceNonce}
				return fence.Raise(ctx, conn.Conn(), c, nil)
			})
		}
	})
}

// guardsOfBatch measures transactions of a guard and nothing else.
func guardsOfBatch(ctx context.Context, s Servers) (measure.Comparison, error) {
	return growth(ctx, s, "guard", func(_ int, pool *pgxpool.Pool, fences int) func(context.Context) error {
		return func(ctx context.Context) error {
			var b pgx.Batch
			b.Queue(`BEGIN`)
			pgclaim.QueueEnter(&b, fence.Claim{Resource: fenceName("guard", rand.IntN(fences)), Token: 1, Nonce: fenceNonce})
			b.Queue(`COMMIT`)
			return pool.SendBatch(ctx, &b).Close()
		}
	})
}

type growthCall func(worker int, pool *pgxpool.Pool, fences int) func(context.Context) error

func growth(ctx context.Context, s Servers, verb string, call growthCall) (measure.Comparison, error) {
	var c measure.Comparison
	for _, at := range []struct {
		pool   *pgxpool.Pool
		fences int
		target float64
	}{{s.Pool, fewFences, 0}, {s.Grown, s.Fences, notSlower}} {
		bytes, err := makeFences(ctx, at.pool, verb, at.fences)
		if err != nil {
			return c, err
		}
		c.Candidates = append(c.Candidates, measure.Candidate{
			Name: fmt.Sprintf("%s, %d fences", verb, at.fences), Target: at.target,
			Worker: func(worker int) func(context.Context) error { return call(worker, at.pool, at.fences) },
		})
		c.Title = fmt.Sprintf(
			"%s one of many fences, drawn at random; %d of them take %.0f bytes each on disk, index included",
			verb,
			at.fences,
			bytes,
		)
	}
	return c, nil
}

func fenceName(verb string, i int) string { return fmt.Sprintf("growth:%s:%d", verb, i) }

// makeFences fills the table of fences, and returns how many bytes each takes on disk. It stands in for as many
// claims.
func makeFences(ctx context.Context, pool *pgxpool.Pool, verb string, n int) (bytes float64, err error) {
	_, err = pool.Exec(ctx, `INSERT INTO fencepost.fence (resource, token, nonce, label, claimed_at)
		SELECT 'growth:' || $1::text || ':' || i, 1, $2::uuid, 'host/12345', now() FROM generate_series(0, $3::int - 1) AS i`,
		verb, fenceNonce.Hex(), n)
	if err != nil {
		return 0, fmt.Errorf("make fences: %w", err)
	}
	if _, err := pool.Exec(ctx, `VACUUM ANALYZE fencepost.fence`); err != nil {
		return 0, fmt.Errorf("vacuum: %w", err)
	}
	err = pool.QueryRow(ctx, `SELECT pg_total_relation_size('fencepost.fence')::float8 / count(*) FROM fencepost.fence`).
		Scan(&bytes)
	return bytes, err
}
