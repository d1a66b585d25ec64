package pgtable

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/token"
)

// Maximum is the highest token in the rows of one resource.
type Maximum struct {
	Resource string // without a namespace
	Token    token.Token
}

// Maxima reads the rows of a table and returns the highest token per resource, for rows that carry a token. The
// resource is the prefix followed by the texts of the columns, which are NOT NULL. A single text is used unchanged;
// several are joined by "/", with "%" and "/" in them escaped as "%25" and "%2F". Maxima reads the whole table once;
// its result takes memory for one text per resource. ctx bounds the call.
//
// Errors: ErrInvalid before anything is sent; ErrUnavailable, also if a standby answers; and PostgreSQL's own.
func Maxima(
	ctx context.Context, db pgsession.Querier, t Table, prefix string, columns []string,
) (maxima []Maximum, err error) {
	if err := errors.Join(t.Check(), CheckNames(columns)); err != nil {
		return nil, err
	}
	err = pgsession.OnConn(ctx, db, "read the rows' tokens", func(db pgsession.Querier) error {
		rows, err := db.Query(ctx, t.maximaSQL(columns), prefix)
		if err == nil {
			maxima, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Maximum, err error) {
				err = row.Scan(&m.Resource, &m.Token)
				return m, err
			})
		}
		return pgerr.Interpret(ctx, "read the rows' tokens", err, false)
	})
	return maxima, err
}

// maximaSQL builds the query; $1 is the prefix.
func (t Table) maximaSQL(columns []string) string {
	sql := resourceSQL(pgsql.Builder("SELECT g.resource, pg_catalog.max(g.token) FROM (SELECT "), columns)
	sql = sql.Text(` COLLATE pg_catalog."C" AS resource, `).Name(t.TokenColumn()).Text(" AS token FROM ")
	sql = sql.Name(t.Schema, t.Name).Text(" WHERE ").Name(t.TokenColumn()).Text(" > 0 AND " + pgsql.OnPrimary)
	return sql.Text(") AS g GROUP BY g.resource ORDER BY g.resource").String()
}

func resourceSQL(sql pgsql.Builder, columns []string) pgsql.Builder {
	sql = sql.Text("pg_catalog.concat($1::pg_catalog.text, ")
	sql = sql.List(len(columns), ", '/', ", func(sql pgsql.Builder, place int) pgsql.Builder {
		if len(columns) == 1 {
			return sql.Name(columns[place]).Text("::pg_catalog.text")
		}
		sql = sql.Text("pg_catalog.replace(pg_catalog.replace(").Name(columns[place])
		return sql.Text("::pg_catalog.text, '%', '%25'), '/', '%2F')")
	})
	if len(columns) == 0 {
		sql = sql.Text("''")
	}
	return sql.Text(")")
}
