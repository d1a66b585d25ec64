package fence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/token"
)

// Maximum is the highest token that the rows of one resource carry.
type Maximum struct {
	Resource string // without a namespace
	Token    token.Token
}

// Maxima reads the rows of a table and returns the highest token per resource, for rows that carry one. The
// resource is the prefix and then the texts of the columns, which are NOT NULL: one as it stands, several joined by "/", with
// "%" and "/" in them escaped as "%25" and "%2F". It reads the whole table once, and what it returns
// fits into memory as one text per resource. ctx bounds the call.
//
// Errors: ErrInvalid before anything is sent, ErrUnavailable, and PostgreSQL's own.
func Maxima(ctx context.Context, db Querier, t Table, prefix string, columns []string) ([]Maximum, error) {
	if err := errors.Join(t.Check(), checkNames(columns)); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, t.maximaSQL(columns), prefix)
	if err != nil {
		return nil, interpret(ctx, "read the rows' tokens", err, false)
	}
	maxima, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Maximum, err error) {
		err = row.Scan(&m.Resource, &m.Token)
		return m, err
	})
	return maxima, interpret(ctx, "read the rows' tokens", err, false)
}

// maximaSQL builds the query; $1 is the prefix.
func (t Table) maximaSQL(columns []string) string {
	tok := quote(t.TokenColumn())
	return "SELECT g.resource, pg_catalog.max(g.token) FROM (SELECT " + resourceSQL(columns) + ` COLLATE pg_catalog."C" AS resource, ` +
		tok + " AS token FROM " + t.String() + " WHERE " + tok + " > 0) AS g GROUP BY g.resource ORDER BY g.resource"
}

func resourceSQL(columns []string) string {
	sql := "pg_catalog.concat($1::pg_catalog.text"
	for i, column := range columns {
		text := quote(column) + "::pg_catalog.text"
		if len(columns) > 1 {
			text = "pg_catalog.replace(pg_catalog.replace(" + text + ", '%', '%25'), '/', '%2F')"
		}
		if i > 0 {
			sql += ", '/'"
		}
		sql += ", " + text
	}
	return sql + ")"
}
