package pgtable

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

//go:embed sql/relation.sql
var relationSQL string

//go:embed sql/columns.sql
var columnsSQL string

//go:embed sql/unique.sql
var uniqueSQL string

// Column is what the catalog says about one column of a table.
type Column struct {
	Name string
	// Type is the column's type as PostgreSQL prints it, a domain's name included.
	Type string
	// BaseOID is the OID of the type; for a domain, of its base type.
	BaseOID uint32
	// Length is the n of varchar(n), in characters; 0 means no bound.
	Length int
	// Loose reports that the column's collation treats some unequal texts as equal (a nondeterministic one).
	Loose bool
	// NotNull reports that the table refuses NULL in the column; a domain's NOT NULL does not count.
	NotNull bool
	// Generated reports that PostgreSQL computes the column, and no statement writes it.
	Generated bool
	// IdentityAlways reports that the column is GENERATED ALWAYS AS IDENTITY and accepts no given value.
	IdentityAlways bool

	identity, readable, writable bool
	BaseName, Collation          string // quoted, with their schemas
	Rounded                      string // the base type with a modifier that rounds values; "" if none does
}

// Inspect asks the catalog whether a table can be fenced and returns its columns in order. If it cannot be fenced,
// the error is a *TableError that says why. A table can be fenced if
//   - it is an ordinary or a partitioned table, not temporary, and no other table inherits from it, because its key
//     would not be unique across both;
//   - its token column is bigint, or a domain over it, NOT NULL, and neither generated nor an identity;
//   - its key columns are NOT NULL, not generated, and together a primary key or another total unique index: not
//     partial, not over expressions, not deferrable;
//   - this user has USAGE on its schema, SELECT on the key columns and the token column, which every write
//     compares, and UPDATE on the token column, which every write stamps. The other privileges of a call (UPDATE of
//     the columns it writes, INSERT, DELETE) are needed when the call is made: a worker that never deletes needs no
//     DELETE.
//
// Other errors: ErrInvalid before anything is sent; ErrUnavailable, also if a standby answers. ctx bounds the call.
func Inspect(ctx context.Context, db pgsession.Querier, t Table) (columns []Column, err error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	err = pgsession.OnConn(ctx, db, "read the catalog", func(db pgsession.Querier) error {
		columns, err = inspect(ctx, db, t)
		return err
	})
	return columns, err
}

func inspect(ctx context.Context, db pgsession.Querier, t Table) ([]Column, error) {
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
	if err := db.QueryRow(ctx, uniqueSQL+" WHERE "+pgsql.OnPrimary, t.Schema, t.Name, t.Key).Scan(&unique); err != nil {
		return nil, pgerr.Interpret(ctx, "read the catalog", err, false)
	}
	if !unique {
		return nil, Unfit(t, "no primary key and no total unique index over exactly %q", t.Key)
	}
	return columns, nil
}

// relationKinds are the values of pg_class.relkind that are not tables, in words.
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

func inspectRelation(ctx context.Context, db pgsession.Querier, t Table) error {
	var kind string
	var temporary, inherited, usable bool
	row := db.QueryRow(ctx, relationSQL+" AND "+pgsql.OnPrimary, t.Schema, t.Name)
	err := row.Scan(&kind, &temporary, &inherited, &usable)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Unfit(t, "no such table")
	case err != nil:
		return pgerr.Interpret(ctx, "read the catalog", err, false)
	case kind != "r" && kind != "p":
		return Unfit(t, "it is %s, not a table", relationKind(kind))
	case temporary:
		return Unfit(t, "it is temporary: no other session sees it")
	case inherited:
		return Unfit(t, "other tables inherit from it, and its key is not unique over their rows")
	case !usable:
		return Unfit(t, "no privilege: USAGE on schema %q", t.Schema)
	}
	return nil
}

func readColumns(ctx context.Context, db pgsession.Querier, t Table) ([]Column, error) {
	rows, err := db.Query(ctx, columnsSQL+" WHERE "+pgsql.OnPrimary+" ORDER BY a.attnum", t.Schema, t.Name)
	if err != nil {
		return nil, pgerr.Interpret(ctx, "read the catalog", err, false)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Column, err error) {
		err = row.Scan(&c.Name, &c.Type, &c.BaseOID, &c.Length, &c.Loose, &c.NotNull, &c.Generated, &c.IdentityAlways,
			&c.identity, &c.readable, &c.writable, &c.BaseName, &c.Rounded, &c.Collation)
		return c, err
	})
	return columns, pgerr.Interpret(ctx, "read the catalog", err, false)
}

func (t Table) checkColumns(columns []Column) error {
	byName := make(map[string]Column, len(columns))
	for _, c := range columns {
		byName[c.Name] = c
	}
	tok, ok := byName[t.TokenColumn()]
	if !ok {
		return Unfit(t, "no token column %q", t.TokenColumn())
	}
	if err := t.checkToken(tok); err != nil {
		return err
	}
	for _, name := range t.Key {
		c, ok := byName[name]
		switch {
		case !ok:
			return Unfit(t, "no key column %q", name)
		case !c.NotNull:
			return Unfit(t, "key column %q may be NULL", name)
		case c.Generated:
			return Unfit(t, "key column %q is generated: writing another column would move the row to another key",
				name)
		case !c.readable:
			return Unfit(t, "no privilege: SELECT on key column %q", name)
		}
	}
	return nil
}

func (t Table) checkToken(c Column) error {
	switch {
	case c.BaseOID != pgtype.Int8OID:
		return Unfit(t, "token column %q is %s, not bigint", c.Name, c.Type)
	case !c.NotNull:
		return Unfit(t, "token column %q may be NULL, and NULL compares as unknown", c.Name)
	case c.Generated:
		return Unfit(t, "token column %q is generated, and cannot be stamped", c.Name)
	case c.identity:
		return Unfit(t, "token column %q is an identity: its numbers are no tokens", c.Name)
	case !c.readable:
		return Unfit(t, "no privilege: SELECT on token column %q", c.Name)
	case !c.writable:
		return Unfit(t, "no privilege: UPDATE on token column %q", c.Name)
	}
	return nil
}

// Readable reports whether this user may SELECT the column.
func (c Column) Readable() bool { return c.readable }

// Unfit makes a *pgerr.TableError.
func Unfit(t Table, format string, args ...any) error {
	return &pgerr.TableError{Table: t.String(), Problem: fmt.Sprintf(format, args...)}
}
