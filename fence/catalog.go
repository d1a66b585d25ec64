package fence

import (
	"context"
	_ "embed" // for the SQL
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

//go:embed sql/relation.sql
var relationSQL string

//go:embed sql/columns.sql
var columnsSQL string

//go:embed sql/unique.sql
var uniqueSQL string

// Querier is what [Inspect] reads the catalog through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Column is what the catalog says of one column of a table.
type Column struct {
	Name string
	// Type is the column's type as PostgreSQL prints it, a domain's name included.
	Type string
	// BaseOID is the OID of the type, domains looked through.
	BaseOID uint32
	// Length is the n of varchar(n), in characters, and 0 where there is no bound.
	Length int
	// Loose tells that the column's collation takes unequal texts for equal (a nondeterministic one).
	Loose bool
	// NotNull tells that the table refuses NULL in the column; what a domain refuses does not count.
	NotNull bool
	// Generated tells that PostgreSQL computes the column, and no statement writes it.
	Generated bool
	// IdentityAlways tells that the column is GENERATED ALWAYS AS IDENTITY, and takes no given value.
	IdentityAlways bool

	identity, readable, writable bool
	baseName, collation          string // quoted, with their schemas
}

// Inspect asks the catalog whether a table can be fenced and returns its columns in their order. Where it
// cannot, the error is a *TableError that says what is wrong. It can, if
//   - it is an ordinary or a partitioned table, not temporary, and no other table inherits from it, over which
//     its key would not be unique;
//   - its token column is bigint, or a domain over it, NOT NULL, and neither generated nor an identity;
//   - its key columns are NOT NULL, not generated, and together a primary key or another total unique index: not
//     partial, not over expressions, not deferrable;
//   - this user has USAGE on its schema, SELECT on the key columns and the token column, which every write
//     compares, and UPDATE on the token column, which every write stamps. What else a call needs (UPDATE of the
//     columns it writes, INSERT, DELETE) it needs when it is made: a worker that never deletes needs no DELETE.
//
// Other errors: ErrInvalid before anything is sent, ErrUnavailable. ctx bounds the call.
func Inspect(ctx context.Context, db Querier, t Table) ([]Column, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if err := inspectRelation(ctx, db, t); err != nil {
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
	return columns, nil
}

// relationKinds are the values of pg_class.relkind that are no table, for people.
func relationKind(kind string) string {
	switch kind {
	case "v":
		return "a view"
	case "m":
		return "a materialized view"
	case "f":
		return "a foreign table"
	case "S":
		return "a sequence"
	case "i", "I":
		return "an index"
	case "c":
		return "a composite type"
	}
	return "no ordinary table"
}

func inspectRelation(ctx context.Context, db Querier, t Table) error {
	var kind string
	var temporary, inherited, usable bool
	err := db.QueryRow(ctx, relationSQL, t.Schema, t.Name).Scan(&kind, &temporary, &inherited, &usable)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return t.unfit("no such table")
	case err != nil:
		return interpret(ctx, "read the catalog", err, false)
	case kind != "r" && kind != "p":
		return t.unfit("it is %s, not a table", relationKind(kind))
	case temporary:
		return t.unfit("it is temporary: no other session sees it")
	case inherited:
		return t.unfit("other tables inherit from it, and its key is not unique over their rows")
	case !usable:
		return t.unfit("no privilege: USAGE on schema %q", t.Schema)
	}
	return nil
}

func readColumns(ctx context.Context, db Querier, t Table) ([]Column, error) {
	rows, err := db.Query(ctx, columnsSQL, t.Schema, t.Name)
	if err != nil {
		return nil, interpret(ctx, "read the catalog", err, false)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Column, err error) {
		err = row.Scan(&c.Name, &c.Type, &c.BaseOID, &c.Length, &c.Loose, &c.NotNull, &c.Generated, &c.IdentityAlways,
			&c.identity, &c.readable, &c.writable, &c.baseName, &c.collation)
		return c, err
	})
	return columns, interpret(ctx, "read the catalog", err, false)
}

func (t Table) checkColumns(columns []Column) error {
	byName := make(map[string]Column, len(columns))
	for _, c := range columns {
		byName[c.Name] = c
	}
	tok, ok := byName[t.TokenColumn()]
	if !ok {
		return t.unfit("no token column %q", t.TokenColumn())
	}
	if err := t.checkToken(tok); err != nil {
		return err
	}
	for _, name := range t.Key {
		c, ok := byName[name]
		switch {
		case !ok:
			return t.unfit("no key column %q", name)
		case !c.NotNull:
			return t.unfit("key column %q may be NULL", name)
		case c.Generated:
			return t.unfit("key column %q is generated: writing another column would move the row to another key", name)
		case !c.readable:
			return t.unfit("no privilege: SELECT on key column %q", name)
		}
	}
	return nil
}

func (t Table) checkToken(c Column) error {
	switch {
	case c.BaseOID != pgtype.Int8OID:
		return t.unfit("token column %q is %s, not bigint", c.Name, c.Type)
	case !c.NotNull:
		return t.unfit("token column %q may be NULL, and NULL compares as unknown", c.Name)
	case c.Generated:
		return t.unfit("token column %q is generated, and cannot be stamped", c.Name)
	case c.identity:
		return t.unfit("token column %q is an identity: its numbers are no tokens", c.Name)
	case !c.readable:
		return t.unfit("no privilege: SELECT on token column %q", c.Name)
	case !c.writable:
		return t.unfit("no privilege: UPDATE on token column %q", c.Name)
	}
	return nil
}

// Readable reports whether this user may SELECT the column.
func (c Column) Readable() bool { return c.readable }

func (t Table) unfit(format string, args ...any) error {
	return &TableError{Table: t.String(), Problem: fmt.Sprintf(format, args...)}
}
