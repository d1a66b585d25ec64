package pgrow

import (
	"slices"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// comparison of the stored token with the writer's.
type comparison string

const (
	strictly    comparison = "<"  // a bare token: once per row
	withinClaim comparison = "<=" // under the guard alone: the holder may write again
)

// stamp is the writer's token, the first argument of every write.
const stamp = "$1::bigint"

// checkNew is pgtable.CheckWrite for a row that may not exist yet: its key is given only as the key.
func checkNew(t pgtable.Table, key pgtable.Key, set pgtable.Set) error {
	if err := pgtable.CheckWrite(t, key, set); err != nil {
		return err
	}
	for _, column := range t.Key {
		if _, twice := set[column]; twice {
			return pgerr.Invalidf("column %q is part of the key of %s and stands in the set as well", column, t)
		}
	}
	return nil
}

// sortedColumns makes the text the same for the same set of columns, for the statement cache.
func sortedColumns(set pgtable.Set, room []string) []string {
	for column := range set {
		room = append(room, column)
	}
	slices.Sort(room)
	return room
}

// updateStatement compares and stamps the token in the same statement that writes. more ends its WHERE.
func updateStatement(
	t pgtable.Table, key pgtable.Key, set pgtable.Set, tok int64, stored comparison, more string,
) pgsql.Statement {
	var names [8]string
	columns := sortedColumns(set, names[:0])
	args := append(make([]any, 0, 1+len(set)+len(key)), tok)
	for _, column := range columns {
		args = append(args, set[column])
	}
	var r pgsql.Buffer
	sql := appendUpdate(r[:0], t, columns, stored).Text(more).Returning(t.TokenColumn())
	return pgsql.Statement{SQL: sql.String(), Args: append(args, key...)}
}

// appendUpdate appends an update up to the end of its WHERE. Its arguments are the token, the columns in their order,
// and the key.
func appendUpdate(sql pgsql.Builder, t pgtable.Table, columns []string, stored comparison) pgsql.Builder {
	sql = sql.Text("UPDATE ").Name(t.Schema, t.Name).Text(" SET ")
	for i, column := range columns {
		sql = sql.Name(column).Text(" = ").Arg(i + 2).Text(", ")
	}
	sql = sql.Name(t.TokenColumn()).Text(" = " + stamp)
	return compare(whereKey(sql, t, 1+len(columns)).Text(" AND "), t, stored)
}

// insertStatement makes INSERT INTO … VALUES … ON CONFLICT (key) DO NOTHING. Only a conflict on the key is a separate
// outcome.
func insertStatement(t pgtable.Table, key pgtable.Key, set pgtable.Set, tok int64) pgsql.Statement {
	var r pgsql.Buffer
	var names [8]string
	columns := sortedColumns(set, names[:0])
	sql := insertInto(pgsql.Builder(r[:0]), t, columns).Text("VALUES (" + stamp)
	sql = onConflict(given(sql, len(t.Key)+len(columns)).Text(") "), t).Text(" DO NOTHING").Returning(t.TokenColumn())
	return pgsql.Statement{SQL: sql.String(), Args: newRow(key, set, columns, tok)}
}

// deleteText is the text that deletes a row whose token is not above the writer's. Its arguments are the token and the
// key.
func deleteText(t pgtable.Table) string {
	var r pgsql.Buffer
	sql := pgsql.Builder(r[:0]).Text("DELETE FROM ").Name(t.Schema, t.Name)
	return compare(whereKey(sql, t, 1).Text(" AND "), t, withinClaim).String()
}

// lockStatement reads a row and locks it against all others, unless its token is above the writer's.
func lockStatement(t pgtable.Table, key pgtable.Key, columns []string, tok int64) pgsql.Statement {
	var r pgsql.Buffer
	args := append(append(make([]any, 0, 1+len(key)), tok), key...)
	sql := pgsql.Builder(r[:0]).Text("SELECT ").Names("", columns).Text(" FROM ").Name(t.Schema, t.Name)
	sql = compare(whereKey(sql, t, 1).Text(" AND "), t, withinClaim).Text(" FOR UPDATE")
	return pgsql.Statement{SQL: sql.String(), Args: args}
}

// lookStatement is the second statement, which finds out why the first changed nothing.
func lookStatement(t pgtable.Table, key pgtable.Key) pgsql.Statement {
	return pgsql.Statement{SQL: SelectSQL(t, []string{t.TokenColumn()}), Args: key}
}

// SelectSQL returns the text of a query that reads the given columns of the row whose key values are its arguments. A
// standby refuses to answer it. Names are quoted and not checked: see [pgtable.Table.Check].
func SelectSQL(t pgtable.Table, columns []string) string {
	var r pgsql.Buffer
	sql := pgsql.Builder(r[:0]).Text("SELECT ").Names("", columns).Text(" FROM ").Name(t.Schema, t.Name)
	return whereKey(sql, t, 0).Text(" AND " + pgsql.OnPrimary).String()
}

// whereKey compares the key columns with the arguments that follow those numbered so far.
func whereKey(sql pgsql.Builder, t pgtable.Table, numbered int) pgsql.Builder {
	word := " WHERE "
	for i, column := range t.Key {
		sql = sql.Text(word).Name(column).Text(" = ").Arg(numbered + i + 1)
		word = " AND "
	}
	return sql
}

// compare appends the comparison of the stored token with the writer's.
func compare(sql pgsql.Builder, t pgtable.Table, stored comparison) pgsql.Builder {
	return sql.Name(t.TokenColumn()).Text(" ", string(stored), " "+stamp)
}

// insertInto begins an insert of the token, the key and the columns.
func insertInto(sql pgsql.Builder, t pgtable.Table, columns []string) pgsql.Builder {
	sql = sql.Text("INSERT INTO ").Name(t.Schema, t.Name).Text(" AS stored (").Name(t.TokenColumn()).Text(", ")
	sql = sql.Names("", t.Key)
	if len(columns) > 0 {
		sql = sql.Text(", ").Names("", columns)
	}
	return sql.Text(") ")
}

// given appends the arguments of an insert that follow the token.
func given(sql pgsql.Builder, n int) pgsql.Builder {
	for i := range n {
		sql = sql.Text(", ").Arg(i + 2)
	}
	return sql
}

// newRow is the arguments of an insert: the token, the key, the columns.
func newRow(key pgtable.Key, set pgtable.Set, columns []string, tok int64) []any {
	args := append(append(make([]any, 0, 1+len(key)+len(set)), tok), key...)
	for _, column := range columns {
		args = append(args, set[column])
	}
	return args
}

func onConflict(sql pgsql.Builder, t pgtable.Table) pgsql.Builder {
	return sql.Text("ON CONFLICT (").Names("", t.Key).Text(")")
}
