package library

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// loadBatch measures a load beside COPY into a temporary table and a merge, as one writes it by hand. The rows are
// there already, in no order, and all of them change.
func loadBatch(ctx context.Context, s Servers) (measure.Comparison, error) {
	plain, err := makeTableOf(ctx, s, "loadplain", s.Rows)
	if err != nil {
		return measure.Comparison{}, err
	}
	table, held, err := batchTable(ctx, s, "load", s.Rows)
	if err != nil {
		return measure.Comparison{}, err
	}
	return measure.Comparison{
		Title: fmt.Sprintf("copy %d rows and merge them into a table that has them", s.Rows),
		Candidates: []measure.Candidate{
			{Name: "COPY + INSERT … ON CONFLICT", Worker: func(int) func(context.Context) error {
				pass := 0
				return func(ctx context.Context) error {
					pass++
					return loadByHand(ctx, s, plain.String(), pass)
				}
			}},
			{Name: "Table.Load", Target: 0.6, Worker: func(int) func(context.Context) error {
				pass := 0
				return func(ctx context.Context) error {
					pass++
					_, err := table.Load(ctx, held, []string{"id", "value"}, loadSource(s.Rows, pass), nil)
					return err
				}
			}},
		},
	}, nil
}

// loadSource gives every row a value, in an order that jumps about.
func loadSource(rows, pass int) pgx.CopyFromSource {
	const stride = 37_633 // prime to powers of ten: every row once
	value := strconv.Itoa(pass)
	return pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
		return []any{int64(i) * stride % int64(rows), value}, nil
	})
}

func loadByHand(ctx context.Context, s Servers, table string, pass int) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `CREATE TEMPORARY TABLE staging (id bigint, value text) ON COMMIT DROP`)
		if err != nil {
			return err
		}
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"staging"}, []string{"id", "value"}, loadSource(s.Rows, pass))
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO `+table+` (id, value) SELECT id, value FROM staging
			ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value`)
		if err == nil && tag.RowsAffected() != int64(s.Rows) {
			err = fmt.Errorf("%w: %d rows changed, not %d", pgx.ErrNoRows, tag.RowsAffected(), s.Rows)
		}
		return err
	})
}
