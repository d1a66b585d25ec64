package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// fencedUpdate measures the update of one row by its primary key, which commits by itself. Both
// candidates set the same column; the fenced one compares and stamps the token besides.
func fencedUpdate(ctx context.Context, s Servers) (measure.Comparison, error) {
	plain, err := makeTable(ctx, s, "plain")
	if err != nil {
		return measure.Comparison{}, err
	}
	fenced, err := makeTable(ctx, s, "fenced")
	if err != nil {
		return measure.Comparison{}, err
	}
	alike, err := makeTable(ctx, s, "fencedsent")
	if err != nil {
		return measure.Comparison{}, err
	}
	sent, err := sentCandidate(ctx, s, func(_ int, pool *pgxpool.Pool) error {
		upsert := `INSERT INTO ` + alike.String() + ` (id, value) VALUES ($1, '0')
			ON CONFLICT (id) DO UPDATE SET last_fencing_token = 0`
		if _, err := pool.Exec(ctx, upsert, recordedID); err != nil {
			return err
		}
		set := fence.Set{"value": recordedValue}
		return fence.Update(ctx, pool, alike, token.Token(recordedToken), fence.Key{recordedID}, set)
	})
	if err != nil {
		return measure.Comparison{}, err
	}
	return measure.Comparison{
		Title: fmt.Sprintf("update one column of a row by primary key, %d goroutines, each its own rows", Workers),
		Candidates: []measure.Candidate{
			{Name: "plain UPDATE", Worker: func(worker int) func(context.Context) error {
				sql, at := plainUpdate(plain), newWalk(worker)
				return func(ctx context.Context) error {
					at.next()
					tag, err := s.Pool.Exec(ctx, sql, strconv.FormatInt(at.pass, 10), at.id)
					return oneRow(tag.RowsAffected(), err)
				}
			}},
			{Name: "fence.Update, bare token", Target: 0.97, Worker: func(worker int) func(context.Context) error {
				at := newWalk(worker)
				return func(ctx context.Context) error {
					at.next()
					set := fence.Set{"value": strconv.FormatInt(at.pass, 10)}
					return fence.Update(ctx, s.Pool, fenced, token.Token(at.pass), fence.Key{at.id}, set)
				}
			}},
			sent,
		},
	}, nil
}
