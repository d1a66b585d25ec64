package work

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

//go:embed tables.sql
var tablesSQL string

// CreateTables makes the schema compare, in a database that does not have it yet. A cell needs a database of its
// own, since the tables of two would be one.
func CreateTables(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, tablesSQL); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return nil
}

// startingBalance is what every account has before the first transfer.
const startingBalance = 1000

// Reset empties the tables and fills compare.item for a workload.
func Reset(ctx context.Context, db DB, w Workload) error {
	initial := 0
	if w == Transfer {
		initial = startingBalance
	}
	return Fill(ctx, db, Items(w), initial)
}

// Fill empties the tables and fills compare.item with so many rows of one value.
func Fill(ctx context.Context, db DB, items, value int) error {
	_, err := db.Exec(ctx, `TRUNCATE compare.item, compare.invoice, compare.invoice_unique, compare.journal, compare.done`)
	if err != nil {
		return fmt.Errorf("empty the tables: %w", err)
	}
	_, err = db.Exec(
		ctx,
		`INSERT INTO compare.item (id, value, initial) SELECT id, $2, $2 FROM generate_series(1, $1::bigint) AS id`,
		items,
		value,
	)
	if err != nil {
		return fmt.Errorf("fill the table of items: %w", err)
	}
	return nil
}
