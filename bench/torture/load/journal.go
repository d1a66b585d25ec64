package load

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// Journal returns what the trigger has written.
func Journal(ctx context.Context, pool *pgxpool.Pool) ([]history.Entry, error) {
	rows, err := pool.Query(ctx, `SELECT seq, part, action, mark, n, before, token FROM torture.journal ORDER BY seq`)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[history.Entry])
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return entries, nil
}

// Numbers returns the numbers of all rows.
func Numbers(ctx context.Context, pool *pgxpool.Pool) (map[string]int64, error) {
	rows, err := pool.Query(ctx, `SELECT grp || '/' || id, n FROM torture.part`)
	if err != nil {
		return nil, fmt.Errorf("read the rows: %w", err)
	}
	numbers := map[string]int64{}
	var row string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&row, &n}, func() error {
		numbers[row] = n
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the rows: %w", err)
	}
	return numbers, nil
}
