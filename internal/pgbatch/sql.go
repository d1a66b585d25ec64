package pgbatch

import (
	"slices"
	"strconv"

	"github.com/fencepost-pg/fencepost/internal/pgsql"
)

// The statements of a batch use aliases: t is the table, u the rows that are sent.

// stamp is the writer's token, the first argument of every statement that writes.
const stamp = "$1::bigint"

// place names a column of the rows that are sent, by its position among them.
func place(sql pgsql.Builder, i int) pgsql.Builder {
	return strconv.AppendInt(append(sql, 'c'), int64(i+1), 10)
}

// sent is the rows that are sent with a statement, their arrays from argument first on:
//
//	(SELECT a.n, a.c1::type AS c1, … FROM ROWS FROM (unnest($2::array), …) WITH ORDINALITY AS a (c1, …, n))
//
// The values are cast to the base type of their column, without a modifier. A value that is too long for the column is
// then refused when it is stored, as it should be, while a cast to varchar(3) would truncate it.
func (b *BatchWriter) sent(sql pgsql.Builder, first int, names []string, arrays []array) pgsql.Builder {
	sql = sql.Text("(SELECT a.n, ").List(len(names), ", ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return place(place(sql.Text("a."), i).Text("::", b.sentAs(names[i]), " AS "), i)
	})
	sql = sql.Text(" FROM ROWS FROM (").List(len(names), ", ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return sql.Text("pg_catalog.unnest(").Arg(first+i).Text("::", string(arrays[i].kind), ")")
	})
	return sql.Text(") WITH ORDINALITY AS a (").List(len(names), ", ", place).Text(", n))")
}

// sentAs is the type to which the values of a column are cast. A writer that rounds casts the values of key columns as
// storing them would, so that they can be compared with what was stored.
func (b *BatchWriter) sentAs(name string) string {
	column := b.columns[name]
	if b.rounds && column.Rounded != "" && slices.Contains(b.table.Key, name) {
		return column.Rounded
	}
	return column.BaseName
}

func (p part) args(before ...any) []any {
	return appendArrays(appendArrays(before, p.keys), p.sets)
}

// arrays are the arrays of all columns, the key's first.
func (p part) arrays() []array { return append(p.keys[:len(p.keys):len(p.keys)], p.sets...) }

func appendArrays(args []any, arrays []array) []any {
	for _, a := range arrays {
		args = append(args, a.text)
	}
	return args
}

// onKey compares the key columns of two aliases; the second is that of the rows that are sent.
func (b *BatchWriter) onKey(sql pgsql.Builder, t, u string) pgsql.Builder {
	return sql.List(len(b.table.Key), " AND ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return place(sql.Text(t, ".").Name(b.table.Key[i]).Text(" = ", u, "."), i)
	})
}

// inOrder is the key columns of u, in the order in which every batch locks rows.
func (b *BatchWriter) inOrder(sql pgsql.Builder) pgsql.Builder {
	return sql.List(len(b.table.Key), ", ", b.collated)
}

func (b *BatchWriter) collated(sql pgsql.Builder, i int) pgsql.Builder {
	sql = place(sql.Text("u."), i)
	if collation := b.columns[b.table.Key[i]].Collation; collation != "" {
		sql = sql.Text(" COLLATE ", collation)
	}
	return sql
}

// lockSQL locks the rows of a part in the order of their keys, no more strongly than an update of non-key columns does.
func (b *BatchWriter) lockSQL(p part) pgsql.Statement {
	sql := pgsql.Builder("SELECT count(*) FROM (SELECT FROM ").Name(b.table.Schema, b.table.Name).Text(" AS t JOIN ")
	sql = b.onKey(b.sent(sql, 1, b.table.Key, p.keys).Text(" AS u ON "), "t", "u").Text(" ORDER BY ")
	sql = sql.Names("t.", b.table.Key).Text(" FOR NO KEY UPDATE OF t) AS locked")
	return pgsql.Statement{SQL: sql.String(), Args: appendArrays(nil, p.keys)}
}

// writeSQL makes the two statements that write a part. The first returns only its count; the second returns the places,
// within the part, of the rows that it did not write.
type writeSQL func(names []string, p part, tok int64) (counted, listed pgsql.Statement)

func (b *BatchWriter) updateSQL(names []string, p part, tok int64) (counted, listed pgsql.Statement) {
	set := pgsql.Builder("UPDATE ").Name(b.table.Schema, b.table.Name).Text(" AS t SET ")
	for i, name := range names {
		set = place(set.Name(name).Text(" = u."), len(b.table.Key)+i).Text(", ")
	}
	set = set.Name(b.table.TokenColumn()).Text(" = " + stamp + " FROM ")
	where := b.onKey(pgsql.Builder(" AS u WHERE "), "t", "u").Text(" AND ")
	where = b.compare(where)

	all := b.all(names)
	sql := b.sent(set, 2, all, p.arrays()).Text(where.String(), " RETURNING ").Stamped("t.", b.table.TokenColumn())
	counted = pgsql.Statement{SQL: sql.String(), Args: p.args(tok)}

	sql = b.sent(pgsql.Builder("WITH given AS MATERIALIZED "), 2, all, p.arrays()).Text(", written AS (")
	sql = sql.Text(set.String(), "given", where.String(), " RETURNING CASE WHEN ").Stamped("t.", b.table.TokenColumn())
	sql = sql.Text(" = 0 THEN u.n END AS n) SELECT g.n FROM given AS g" +
		" WHERE NOT EXISTS (SELECT FROM written AS w WHERE w.n = g.n) ORDER BY g.n")
	return counted, pgsql.Statement{SQL: sql.String(), Args: p.args(tok)}
}

// all are the columns that are sent, the key's first.
func (b *BatchWriter) all(names []string) []string {
	return append(b.table.Key[:len(b.table.Key):len(b.table.Key)], names...)
}

func (b *BatchWriter) upsertSQL(names []string, p part, tok int64) (counted, listed pgsql.Statement) {
	all := b.all(names)
	insert := b.insertInto(nil, names).Text("SELECT ").List(len(all), ", ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return place(sql.Text("u."), i)
	}).Text(", " + stamp + " FROM ")
	rest := b.inOrder(pgsql.Builder(" AS u ORDER BY "))
	counting := b.onConflict(rest, names, countUpdated).String()
	noting := b.onConflict(rest, names, b.noteUpdating()).String()

	sql := b.sent(insert, 2, all, p.arrays()).Text(counting, " RETURNING ").Stamped("t.", b.table.TokenColumn())
	counted = pgsql.Statement{SQL: sql.String(), Args: p.args(tok)}

	sql = b.sent(pgsql.Builder("WITH given AS MATERIALIZED "), 2, all, p.arrays()).Text(", written AS (")
	sql = sql.Text(insert.String(), "given", noting).ReturningStamped("t.", b.table.TokenColumn(), b.table.Key)
	sql = sql.Text(", ", b.countNoted(), " AS counted")
	sql = b.onKey(sql.Text(") SELECT g.n FROM given AS g WHERE NOT EXISTS (SELECT FROM written AS w WHERE "), "w", "g")
	return counted, pgsql.Statement{SQL: sql.Text(") ORDER BY g.n").String(), Args: p.args(tok)}
}

// insertInto begins the insert of the columns that are sent, and the token.
func (b *BatchWriter) insertInto(sql pgsql.Builder, names []string) pgsql.Builder {
	sql = sql.Text("INSERT INTO ").Name(b.table.Schema, b.table.Name).Text(" AS t (")
	return sql.Names("", append(b.all(names), b.table.TokenColumn())).Text(") ")
}

// How a batch of upserts knows how many rows it inserted: the SET list counts, in a setting of the transaction, the
// rows that were there (see package pgrow on what that rests on). A savepoint's rollback takes the count back with the
// rows.
//
// A BEFORE UPDATE trigger may still keep out a row that the SET list has seen. The first statement of a batch counts
// only if all rows were written, so it need not know. The second one does: its SET list notes the key of the row, and
// its RETURNING, which is for written rows alone, counts the row if its key is the one that was noted last.
const (
	countFromZero = `SELECT pg_catalog.set_config('fencepost.updated', '0', true), ` +
		`pg_catalog.set_config('fencepost.updating', '', true)`
	countOne = `pg_catalog.set_config('fencepost.updated', (pg_catalog.current_setting('fencepost.updated')::bigint` +
		` OPERATOR(pg_catalog.+) 1)::pg_catalog.text, true)`
	countUpdated = `CASE WHEN ` + countOne + ` IS NOT NULL THEN ` + stamp + ` END`
	updatedSQL   = `SELECT pg_catalog.current_setting('fencepost.updated')::bigint`
)

// noteUpdating is the stamp in the SET list of a statement that records which row it updates.
func (b *BatchWriter) noteUpdating() string {
	sql := b.storedKey(pgsql.Builder("CASE WHEN pg_catalog.set_config('fencepost.updating', "))
	return sql.Text(", true) IS NOT NULL THEN " + stamp + " END").String()
}

// countNoted counts, in RETURNING, a row that was recorded.
func (b *BatchWriter) countNoted() string {
	sql := pgsql.Builder("CASE WHEN pg_catalog.current_setting('fencepost.updating') OPERATOR(pg_catalog.=) ")
	return b.storedKey(sql).Text(" THEN " + countOne + " END").String()
}

// storedKey is the key of the row in the table as one text.
func (b *BatchWriter) storedKey(sql pgsql.Builder) pgsql.Builder {
	return sql.Text("ROW(").Names("t.", b.table.Key).Text(")::pg_catalog.text")
}

// onConflict compares the stored token, never the proposed one. token is the expression that stamps.
func (b *BatchWriter) onConflict(sql pgsql.Builder, names []string, token string) pgsql.Builder {
	sql = sql.Text(" ON CONFLICT (").Names("", b.table.Key).Text(") DO UPDATE SET ")
	for _, name := range names {
		sql = sql.Name(name).Text(" = EXCLUDED.").Name(name).Text(", ")
	}
	return b.compare(sql.Name(b.table.TokenColumn()).Text(" = ", token, " WHERE "))
}

// compare is the condition under which a row is written: within a claim, which the guard has verified.
func (b *BatchWriter) compare(sql pgsql.Builder) pgsql.Builder {
	return sql.Text("t.").Name(b.table.TokenColumn()).Text(" <= " + stamp)
}

// orderSQL sorts the keys of rows, and says which of them equal the one before.
func (b *BatchWriter) orderSQL(keys []array) pgsql.Statement {
	sql := pgsql.Builder("SELECT u.n, coalesce(")
	sql = sql.List(len(b.table.Key), " AND ", func(sql pgsql.Builder, i int) pgsql.Builder {
		return place(b.collated(sql, i).Text(" = lag(u."), i).Text(") OVER sorted")
	}).Text(", false) FROM ")
	sql = b.inOrder(b.sent(sql, 1, b.table.Key, keys).Text(" AS u WINDOW sorted AS (ORDER BY "))
	sql = b.inOrder(sql.Text(") ORDER BY "))
	return pgsql.Statement{SQL: sql.String(), Args: appendArrays(nil, keys)}
}

// lookSQL reads the tokens of rows; NULL if there is no row.
func (b *BatchWriter) lookSQL(keys []array) pgsql.Statement {
	sql := pgsql.Builder("SELECT u.n, t.").Name(b.table.TokenColumn()).Text(" FROM ")
	sql = b.sent(sql, 1, b.table.Key, keys).Text(" AS u LEFT JOIN ").Name(b.table.Schema, b.table.Name).Text(" AS t ON ")
	sql = b.onKey(sql, "t", "u").Text(" WHERE " + pgsql.OnPrimary + " ORDER BY u.n")
	return pgsql.Statement{SQL: sql.String(), Args: appendArrays(nil, keys)}
}
