package pgbatch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// loadSQL builds the statements of a load, over a table that holds the staged rows.
type loadSQL struct {
	writer  *BatchWriter
	columns []string // in the order of the source
	names   []string // without the key
	staging string   // name of the staging table
}

// stagingName is the same for each shape of the staging table. pgx remembers by text how statements are encoded, so one
// name for two shapes would send values in the wrong form. A new name for each load would fill the server with
// statements that are never used again.
func stagingName(table pgtable.Table, fields []pgconn.FieldDescription) string {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q %q", table.Schema, table.Name) // writing to a hash never fails
	for _, f := range fields {
		_, _ = fmt.Fprintf(hash, " %q %d %d", f.Name, f.DataTypeOID, f.TypeModifier)
	}
	return "fencepost_load_" + hex.EncodeToString(hash.Sum(nil)[:12])
}

func (q loadSQL) table(sql pgsql.Builder) pgsql.Builder { return sql.Name("pg_temp", q.staging) }

func (q loadSQL) target(sql pgsql.Builder) pgsql.Builder {
	return sql.Name(q.writer.table.Schema, q.writer.table.Name)
}

// shape reads no rows: it locks the table against changes of its columns until the transaction ends, and returns their
// types.
func (q loadSQL) shape() string {
	return q.target(pgsql.Builder("SELECT ").Names("", q.columns).Text(" FROM ")).Text(" LIMIT 0").String()
}

// create makes a table with only the columns: no defaults, no constraints. Nothing of it is left after the transaction,
// however it ends and whichever client uses the server connection next.
func (q loadSQL) create() string {
	sql := q.table(pgsql.Builder("CREATE TEMPORARY TABLE ")).Text(" ON COMMIT DROP AS SELECT ").Names("", q.columns)
	return q.target(sql.Text(" FROM ")).Text(" WITH NO DATA").String()
}

// merge takes the rows in the order of their keys.
func (q loadSQL) merge(sql pgsql.Builder) pgsql.Builder {
	b := q.writer
	sql = b.insertInto(sql, q.names).Text("SELECT ").Names("", b.all(q.names)).Text(", " + stamp + " FROM ")
	return b.onConflict(q.table(sql).Text(" ORDER BY ").Names("", b.table.Key), q.names, stamp)
}

// counted is merge, and returns how many rows it wrote.
func (q loadSQL) counted() string {
	sql := q.merge(pgsql.Builder("WITH written AS (")).Text(" RETURNING ").Stamped("t.", q.writer.table.TokenColumn())
	return sql.Text(" AS stamp) SELECT count(stamp) FROM written").String()
}

// listed is merge, after which the staging table contains the rows that have not been written.
func (q loadSQL) listed() string {
	table := q.writer.table
	sql := q.merge(pgsql.Builder("WITH written AS (")).ReturningStamped("t.", table.TokenColumn(), table.Key)
	sql = q.table(sql.Text(") DELETE FROM ")).Text(" AS s USING written AS w WHERE ")
	return q.sameKey(sql, "s", "w").String()
}

func (q loadSQL) sameKey(sql pgsql.Builder, a, b string) pgsql.Builder {
	key := q.writer.table.Key
	return sql.List(len(key), " AND ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return sql.Text(a, ".").Name(key[i]).Text(" = ", b, ".").Name(key[i])
	})
}

// twice returns a key that appears twice.
func (q loadSQL) twice() string {
	key := q.writer.table.Key
	sql := q.table(pgsql.Builder("SELECT ").Names("", key).Text(" FROM ")).Text(" GROUP BY ").Names("", key)
	return sql.Text(" HAVING count(*) > 1 LIMIT 1").String()
}

func (q loadSQL) joined(sql pgsql.Builder) pgsql.Builder {
	sql = q.target(q.table(sql.Text(" FROM ")).Text(" AS s LEFT JOIN ")).Text(" AS t ON ")
	return q.sameKey(sql, "t", "s")
}

// count counts the rows that have not been written: all, and stale.
func (q loadSQL) count() string {
	sql := pgsql.Builder("SELECT count(*), count(*) FILTER (WHERE t.").Name(q.writer.table.TokenColumn())
	return q.joined(sql.Text(" > " + stamp + ")")).String()
}

// left lists the rows that have not been written, and the tokens of the stored rows.
func (q loadSQL) left() string {
	table := q.writer.table
	sql := pgsql.Builder("SELECT t.").Name(table.TokenColumn()).Text(", ").Names("s.", table.Key)
	sql = q.joined(sql).Text(" ORDER BY ").Names("s.", table.Key)
	return sql.Text(" LIMIT ", strconv.Itoa(MaxListed)).String()
}
