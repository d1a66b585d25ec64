package fence

import (
	"context"
	_ "embed" // for the SQL
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/columns.sql
var columnsSQL string

//go:embed sql/unique.sql
var uniqueSQL string

// Querier is what [Inspect] reads the catalog through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

type column struct {
	name, typ string
	bigint    bool
	notNull   bool
}

// Inspect asks the catalog whether a table can be fenced and returns its columns in their order. It
// can, if its token column is bigint NOT NULL and its key columns are NOT NULL and together a primary
// key or a total unique index; otherwise the error is a *TableError that says what is wrong.
//
// Other errors: ErrInvalid before anything is sent, ErrUnavailable. ctx bounds the call.
func Inspect(ctx context.Context, db Querier, t Table) ([]string, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	columns, err := readColumns(ctx, db, t)
	if err != nil {
		return nil, err
	}
	if err := t.checkColumns(columns); err != nil {
		return nil, err
	}
	var unique bool
	if err := db.QueryRow(ctx, uniqueSQL, t.Schema, t.Name, t.Key).Scan(&unique); err != nil {
		return nil, interpret(ctx, "read the catalog", err, false)
	}
	if !unique {
		return nil, t.unfit("no primary key and no total unique index over exactly %q", t.Key)
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names, nil
}

func readColumns(ctx context.Context, db Querier, t Table) ([]column, error) {
	rows, err := db.Query(ctx, columnsSQL, t.Schema, t.Name)
	if err != nil {
		return nil, interpret(ctx, "read the catalog", err, false)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c column, err error) {
		err = row.Scan(&c.name, &c.typ, &c.bigint, &c.notNull)
		return c, err
	})
	return columns, interpret(ctx, "read the catalog", err, false)
}

func (t Table) checkColumns(columns []column) error {
	if len(columns) == 0 {
		return t.unfit("no such table")
	}
	byName := make(map[string]column, len(columns))
	for _, c := range columns {
		byName[c.name] = c
	}
	tok, ok := byName[t.TokenColumn()]
	switch {
	case !ok:
		return t.unfit("no token column %q", t.TokenColumn())
	case !tok.bigint:
		return t.unfit("token column %q is %s, not bigint", tok.name, tok.typ)
	case !tok.notNull:
		return t.unfit("token column %q may be NULL, and NULL compares as unknown", tok.name)
	}
	for _, name := range t.Key {
		c, ok := byName[name]
		switch {
		case !ok:
			return t.unfit("no key column %q", name)
		case !c.notNull:
			return t.unfit("key column %q may be NULL", name)
		}
	}
	return nil
}

func (t Table) unfit(format string, args ...any) error {
	return &TableError{Table: t.String(), Problem: fmt.Sprintf(format, args...)}
}
