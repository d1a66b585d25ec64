package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/fence"
)

// benchRow is a row of the tables that makeTable makes.
type benchRow struct {
	ID    int64
	Value string
}

// batchTable makes a filled table whose rows are one resource, declares it, and acquires its lease. The lease lasts
// longer than any measuring and is not given back: the keys of the run are removed after it.
func batchTable(
	ctx context.Context,
	s Servers,
	name string,
	rows int,
) (*fencepost.Table[benchRow], *fencepost.Lease, error) {
	made, err := makeTableOf(ctx, s, name, rows)
	if err != nil {
		return nil, nil, err
	}
	store, err := fencepost.New(s.Pool, s.Redis, &fencepost.Options{Namespace: s.Name})
	if err != nil {
		return nil, nil, err
	}
	table, err := fencepost.NewTable[benchRow](ctx, store, fencepost.TableSpec{
		Schema: made.Schema, Name: made.Name, Key: made.Key, Resource: fencepost.Constant(name),
	})
	if err != nil {
		return nil, nil, err
	}
	held, err := store.Acquire(ctx, name, nil)
	return table, held, err
}

// updateBatch measures a batch of rowCount rows beside the statement that one writes by hand. Both are given the same
// rows, as values of Go, and set the same column; ours compares and stamps the token besides, under the guard.
func updateBatch(ctx context.Context, s Servers) (measure.Comparison, error) {
	plain, err := makeTable(ctx, s, "manyplain")
	if err != nil {
		return measure.Comparison{}, err
	}
	table, held, err := batchTable(ctx, s, "batch", rowCount)
	if err != nil {
		return measure.Comparison{}, err
	}
	return measure.Comparison{
		Title: fmt.Sprintf("update one column of %d rows by primary key, in one transaction", rowCount),
		Candidates: []measure.Candidate{
			{Name: "UPDATE … FROM unnest(…)", Worker: func(int) func(context.Context) error {
				at := manyRows{table: plain}
				return func(ctx context.Context) error { return at.byHand(ctx, s) }
			}},
			{Name: "Table.UpdateBatch", Target: 0.8, Worker: func(int) func(context.Context) error {
				pass := 0
				return func(ctx context.Context) error {
					pass++
					value := strconv.Itoa(pass)
					rows := make([]fencepost.Change, rowCount)
					for i := range rows {
						rows[i] = fencepost.Change{Key: fencepost.Key{int64(i)}, Set: fencepost.Set{"value": value}}
					}
					return table.UpdateBatch(ctx, held, rows, nil)
				}
			}},
		},
	}, nil
}

type manyRows struct {
	table fence.Table
	pass  int
}

func (m *manyRows) byHand(ctx context.Context, s Servers) error {
	m.pass++
	value := strconv.Itoa(m.pass)
	ids, values := make([]int64, rowCount), make([]string, rowCount)
	for i := range ids {
		ids[i], values[i] = int64(i), value
	}
	tag, err := s.Pool.Exec(ctx, `UPDATE `+m.table.String()+` AS t SET value = u.value
		FROM unnest($1::bigint[], $2::text[]) AS u (id, value) WHERE t.id = u.id`, ids, values)
	if err == nil && tag.RowsAffected() != rowCount {
		err = fmt.Errorf("%w: %d rows changed, not %d", pgx.ErrNoRows, tag.RowsAffected(), rowCount)
	}
	return err
}
