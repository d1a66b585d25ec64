package library

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// rowCount is how many rows a table has. The workers share them out and go round.
const rowCount = 10_000

// makeTable makes a filled table for one candidate. All candidates get the same, so what one leaves
// behind for the vacuum costs no other. Half of each page is free, so that updates stay on it.
func makeTable(ctx context.Context, s Servers, name string) (fence.Table, error) {
	return makeTableOf(ctx, s, name, rowCount)
}

func makeTableOf(ctx context.Context, s Servers, name string, rows int) (fence.Table, error) {
	t := fence.Table{Schema: s.Schema, Name: name, Key: []string{"id"}}
	for _, sql := range []string{
		`CREATE SCHEMA IF NOT EXISTS ` + s.Schema,
		`CREATE TABLE ` + t.String() + ` (
			id bigint PRIMARY KEY, value text NOT NULL,
			last_fencing_token bigint NOT NULL DEFAULT 0 CHECK (last_fencing_token >= 0)) WITH (fillfactor = 50)`,
		fmt.Sprintf(`INSERT INTO %s (id, value) SELECT i, '0' FROM generate_series(0, %d) AS i`, t, rows-1),
		`VACUUM ANALYZE ` + t.String(),
	} {
		if _, err := s.Pool.Exec(ctx, sql); err != nil {
			return t, fmt.Errorf("make the table %s: %w", name, err)
		}
	}
	return t, nil
}

// plainUpdate is the update that everybody writes by hand.
func plainUpdate(t fence.Table) string {
	return `UPDATE ` + t.String() + ` SET value = $1 WHERE id = $2`
}

// walk goes through one worker's rows, again and again.
type walk struct {
	id   int64
	pass int64 // 1 in the first pass: a token that rises for each row
	step int64 // the number of workers
}

func newWalk(worker int) *walk { return newWalkOf(worker, Workers) }

// newWalkOf is a walk where not [Workers] share out the rows but another number of workers.
func newWalkOf(worker, workers int) *walk {
	return &walk{id: int64(worker - workers), pass: 1, step: int64(workers)}
}

func (w *walk) next() {
	w.id += w.step
	if w.id >= rowCount {
		w.id %= w.step
		w.pass++
	}
}

// oneRow checks that an update did something.
func oneRow(changed int64, err error) error {
	if err == nil && changed != 1 {
		err = fmt.Errorf("%w: %d rows changed, not 1", pgx.ErrNoRows, changed)
	}
	return err
}
