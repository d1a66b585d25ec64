package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

// The names of what is measured beside a transaction written by hand.
const (
	doName      = "Store.Do with one write"
	lockedName  = "AdvisoryTx.Do with one write"
	acquireName = "Store.Acquire + Release, no write"
)

// store measures the whole path beside an advisory lock in the writing transaction. That lock gives no
// lease to work under, only the transaction, and no token: the figure says what the difference costs.
func store(ctx context.Context, s Servers) (measure.Comparison, error) {
	c := measure.Comparison{
		Title: fmt.Sprintf(
			"write one row as the only one at work on a resource, %d goroutines, nobody else wants it",
			Workers,
		),
	}
	fenced, err := fencepost.New(s.Pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return c, err
	}
	locker, err := fencepost.NewAdvisoryTx(s.Pool, &fencepost.AdvisoryTxOptions{Namespace: s.Name})
	if err != nil {
		return c, err
	}
	hand, err := lockedUpdate(ctx, s)
	if err != nil {
		return c, err
	}
	do, err := do(ctx, s, doing{name: doName, table: "done", workers: Workers, do: fenced.Do})
	if err != nil {
		return c, err
	}
	do.Target = 0.6
	lockedDo, err := doLocked(ctx, s, locker)
	if err != nil {
		return c, err
	}
	sent, err := sentStore(ctx, s)
	c.Candidates = append([]measure.Candidate{hand, do, lockedDo, acquire(fenced)}, sent...)
	return c, err
}

func acquire(fenced *fencepost.Store) measure.Candidate {
	return measure.Candidate{Name: acquireName, Target: 0.9, Worker: func(worker int) func(context.Context) error {
		resource := fmt.Sprintf("held-%d", worker)
		return func(ctx context.Context) error {
			l, err := fenced.Acquire(ctx, resource, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}
	}}
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

func doLocked(ctx context.Context, s Servers, locker *fencepost.AdvisoryTx) (measure.Candidate, error) {
	c, err := do(ctx, s, doing{name: lockedName, table: "lockeddone", workers: Workers, do: locker.Do})
	c.Target = 0.9
	return c, err
}

// doing is something's Do, and who calls it.
type doing struct {
	name, table string
	workers     int
	do          func(ctx context.Context, resource string, fn fencepost.TxFunc) error
}

// do writes one row in the function that it passes.
func do(ctx context.Context, s Servers, d doing) (measure.Candidate, error) {
	table, err := makeTable(ctx, s, d.table)
	return measure.Candidate{
		Name: d.name,
		Worker: func(worker int) func(context.Context) error {
			sql, at, resource := plainUpdate(table), newWalkOf(worker, d.workers), fmt.Sprintf("%s-%d", d.table, worker)
			return func(ctx context.Context) error {
				at.next()
				return d.do(ctx, resource, func(ctx context.Context, tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, sql, strconv.FormatInt(at.pass, 10), at.id)
					return oneRow(tag.RowsAffected(), err)
				})
			}
		},
	}, err
}
