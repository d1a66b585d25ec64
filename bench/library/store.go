package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

// store measures the whole path beside an advisory lock in the writing transaction. That lock gives no
// lease to work under, only the transaction, and no token: the figure says what the difference costs.
func store(ctx context.Context, s Servers) (measure.Comparison, error) {
	fenced, err := fencepost.New(s.Pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return measure.Comparison{}, err
	}
	locked, err := lockedUpdate(ctx, s)
	if err != nil {
		return measure.Comparison{}, err
	}
	do, err := do(ctx, s, fenced)
	if err != nil {
		return measure.Comparison{}, err
	}
	return measure.Comparison{
		Title: fmt.Sprintf(
			"write one row as the only one at work on a resource, %d goroutines, nobody else wants it",
			Workers,
		),
		Candidates: []measure.Candidate{locked, do, {
			Name: "Store.Acquire + Release, no write",
			Worker: func(worker int) func(context.Context) error {
				resource := fmt.Sprintf("held-%d", worker)
				return func(ctx context.Context) error {
					l, err := fenced.Acquire(ctx, resource, nil)
					if err != nil {
						return err
					}
					return l.Release(ctx)
				}
			},
		}},
	}, nil
}

// lockedUpdate is what hand-written code does with pgx if it has only PostgreSQL.
func lockedUpdate(ctx context.Context, s Servers) (measure.Candidate, error) {
	table, err := makeTable(ctx, s, "locked")
	return measure.Candidate{
		Name: "BEGIN + pg_advisory_xact_lock + UPDATE + COMMIT",
		Worker: func(worker int) func(context.Context) error {
			const lock = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`
			sql, at, resource := plainUpdate(table), newWalk(worker), fmt.Sprintf("locked-%d", worker)
			return func(ctx context.Context) error {
				at.next()
				return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, lock, resource); err != nil {
						return err
					}
					tag, err := tx.Exec(ctx, sql, strconv.FormatInt(at.pass, 10), at.id)
					return oneRow(tag.RowsAffected(), err)
				})
			}
		},
	}, err
}

func do(ctx context.Context, s Servers, fenced *fencepost.Store) (measure.Candidate, error) {
	table, err := makeTable(ctx, s, "done")
	return measure.Candidate{
		Name: "Store.Do with one write",
		Worker: func(worker int) func(context.Context) error {
			sql, at, resource := plainUpdate(table), newWalk(worker), fmt.Sprintf("done-%d", worker)
			return func(ctx context.Context) error {
				at.next()
				return fenced.Do(ctx, resource, func(ctx context.Context, tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, sql, strconv.FormatInt(at.pass, 10), at.id)
					return oneRow(tag.RowsAffected(), err)
				})
			}
		},
	}, err
}
