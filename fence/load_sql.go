package fence

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// loadSQL is the statements of a load, over a table that holds what is loaded.
type loadSQL struct {
	bulk    *Bulk
	columns []string // in the order of the source
	names   []string // without the key
	staging string   // name of the staging table
}

// stagingName is one for each shape of the staging table. pgx remembers by their text how statements are encoded,
// so one name for two shapes would send values in the wrong form; and a new name for each load would fill the
// server with statements that are of no use again.
func stagingName(table Table, fields []pgconn.FieldDescription) string {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q %q", table.Schema, table.Name) // a hash takes everything
	for _, f := range fields {
		_, _ = fmt.Fprintf(hash, " %q %d %d", f.Name, f.DataTypeOID, f.TypeModifier)
	}
	return "fencepost_load_" + hex.EncodeToString(hash.Sum(nil)[:12])
}

func (q loadSQL) table() string { return "pg_temp." + quote(q.staging) }

// shape reads nothing: it locks the table against changes of its columns until the transaction ends, and tells
// their types.
func (q loadSQL) shape() string {
	return "SELECT " + quoteAll(q.columns) + " FROM " + q.bulk.table.String() + " LIMIT 0"
}

// create makes a table of the columns alone: no defaults, no constraints, and nothing of it left after the
// transaction, whatever its end and whoever uses the server's connection next.
func (q loadSQL) create() string {
	return "CREATE TEMPORARY TABLE " + q.table() + " ON COMMIT DROP AS SELECT " + quoteAll(q.columns) + " FROM " +
		q.bulk.table.String() + " WITH NO DATA"
}

// merge takes the rows in the order of their keys.
func (q loadSQL) merge() string {
	return q.bulk.insertInto(q.names) + "SELECT " + quoteAll(q.bulk.all(q.names)) + ", " + stamped + " FROM " + q.table() +
		" ORDER BY " + q.bulk.keyColumns("") + q.bulk.onConflict(q.names)
}

// careful is merge, after which the staging table holds what has not been written.
func (q loadSQL) careful() string {
	return "WITH written AS (" + q.merge() + " RETURNING " + q.bulk.keyColumns("t.") + ") DELETE FROM " + q.table() +
		" AS s USING written AS w WHERE " + q.sameKey("s", "w")
}

func (q loadSQL) sameKey(a, b string) string {
	return list(len(q.bulk.table.Key), " AND ", func(i int) string {
		name := quote(q.bulk.table.Key[i])
		return a + "." + name + " = " + b + "." + name
	})
}

// twice returns a key that stands twice.
func (q loadSQL) twice() string {
	keys := q.bulk.keyColumns("")
	return "SELECT " + keys + " FROM " + q.table() + " GROUP BY " + keys + " HAVING count(*) > 1 LIMIT 1"
}

func (q loadSQL) joined() string {
	return " FROM " + q.table() + " AS s LEFT JOIN " + q.bulk.table.String() + " AS t ON " + q.sameKey("t", "s")
}

// count counts what has not been written: all, and stale.
func (q loadSQL) count() string {
	tok := "t." + quote(q.bulk.table.TokenColumn())
	return "SELECT count(*), count(*) FILTER (WHERE " + tok + " > " + stamped + ")" + q.joined()
}

// left lists what has not been written, and the tokens of the rows.
func (q loadSQL) left() string {
	return "SELECT t." + quote(q.bulk.table.TokenColumn()) + ", " + q.bulk.keyColumns("s.") + q.joined() +
		" ORDER BY " + q.bulk.keyColumns("s.") + " LIMIT " + fmt.Sprint(MaxListed)
}
