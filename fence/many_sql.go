package fence

import (
	"strconv"
	"strings"
)

// text builds SQL.
type text struct{ strings.Builder }

func (s *text) add(parts ...string) *text {
	for _, p := range parts {
		s.WriteString(p)
	}
	return s
}

func arg(number int) string { return "$" + strconv.Itoa(number) }

// column is how the rows that travel name a column: its place among them.
func column(place int) string { return "c" + strconv.Itoa(place+1) }

// list joins what name returns for each place.
func list(n int, sep string, name func(place int) string) string {
	var s text
	for i := range n {
		if i > 0 {
			s.add(sep)
		}
		s.add(name(i))
	}
	return s.String()
}

// sent is the rows that a statement brings along, their arrays from argument first on:
//
//	(SELECT a.n, a.c1::type AS c1, … FROM ROWS FROM (unnest($2::array), …) WITH ORDINALITY AS a (c1, …, n))
//
// The values become the base type of their column, without a modifier: what is too long for the column is then
// refused when it is stored, as it should be, where a cast to varchar(3) would cut it.
func (b *Bulk) sent(first int, names []string, arrays []array) string {
	var s text
	s.add("(SELECT a.n, ", list(len(names), ", ", func(i int) string {
		return "a." + column(i) + "::" + b.columns[names[i]].baseName + " AS " + column(i)
	}))
	s.add(" FROM ROWS FROM (", list(len(names), ", ", func(i int) string {
		return "pg_catalog.unnest(" + arg(first+i) + "::" + string(arrays[i].kind) + ")"
	}))
	s.add(") WITH ORDINALITY AS a (", list(len(names), ", ", column), ", n))")
	return s.String()
}

func (p part) args(before ...any) []any {
	return appendArrays(appendArrays(before, p.keys), p.sets)
}

func appendArrays(args []any, arrays []array) []any {
	for _, a := range arrays {
		args = append(args, a.text)
	}
	return args
}

// onKey compares the key columns of t with those of u.
func (b *Bulk) onKey(t, u string) string {
	return list(len(b.table.Key), " AND ", func(i int) string {
		return t + "." + quote(b.table.Key[i]) + " = " + u + "." + column(i)
	})
}

// inOrder is the key columns of u, in the order in which everybody takes rows.
func (b *Bulk) inOrder(u string) string {
	return list(len(b.table.Key), ", ", func(i int) string { return b.collated(u, i) })
}

func (b *Bulk) collated(u string, i int) string {
	name := u + "." + column(i)
	if collation := b.columns[b.table.Key[i]].collation; collation != "" {
		name += " COLLATE " + collation
	}
	return name
}

func (b *Bulk) keyColumns(prefix string) string {
	return list(len(b.table.Key), ", ", func(i int) string { return prefix + quote(b.table.Key[i]) })
}

// lockSQL locks the rows of a part in the order of their keys, and no harder than an update of other columns does.
func (b *Bulk) lockSQL(p part) statement {
	var s text
	s.add("SELECT count(*) FROM (SELECT FROM ", b.table.String(), " AS t JOIN ", b.sent(1, b.table.Key, p.keys), " AS u ON ",
		b.onKey("t", "u"), " ORDER BY ", b.keyColumns("t."), " FOR NO KEY UPDATE OF t) AS locked")
	return statement{sql: s.String(), args: appendArrays(nil, p.keys)}
}

// manySQL is a statement that writes a part: careless returns nothing but its count, careful the places within the
// part of the rows that it did not write.
type manySQL func(names []string, p part, tok int64) (careless, careful statement)

const stamped = "$1::bigint"

// stamp is the condition under which a row is written: within a claim, which the guard has proved.
func (b *Bulk) stamp() string {
	return "t." + quote(b.table.TokenColumn()) + " " + string(withinClaim) + " " + stamped
}

func (b *Bulk) updateSQL(names []string, p part, tok int64) (careless, careful statement) {
	var s text
	s.add("UPDATE ", b.table.String(), " AS t SET ")
	for i, name := range names {
		s.add(quote(name), " = u.", column(len(b.table.Key)+i), ", ")
	}
	s.add(quote(b.table.TokenColumn()), " = ", stamped, " FROM ")
	rest := " AS u WHERE " + b.onKey("t", "u") + " AND " + b.stamp()
	sent := b.sent(2, b.all(names), append(p.keys[:len(p.keys):len(p.keys)], p.sets...))
	args := p.args(tok)
	careless = statement{sql: s.String() + sent + rest, args: args}
	careful = statement{
		sql: "WITH given AS MATERIALIZED " + sent + ", written AS (" + s.String() + "given" + rest + " RETURNING u.n)" +
			" SELECT g.n FROM given AS g WHERE NOT EXISTS (SELECT FROM written AS w WHERE w.n = g.n) ORDER BY g.n",
		args: args,
	}
	return careless, careful
}

// all are the columns that travel: the key's first.
func (b *Bulk) all(names []string) []string {
	return append(b.table.Key[:len(b.table.Key):len(b.table.Key)], names...)
}

func (b *Bulk) upsertSQL(names []string, p part, tok int64) (careless, careful statement) {
	columns := b.all(names)
	select1 := "SELECT " + list(len(columns), ", ", func(i int) string { return "u." + column(i) }) + ", " + stamped + " FROM "
	sent := b.sent(2, columns, append(p.keys[:len(p.keys):len(p.keys)], p.sets...))
	args := p.args(tok)
	rest := " AS u ORDER BY " + b.inOrder("u") + b.onConflict(names)
	careless = statement{sql: b.insertInto(names) + select1 + sent + rest, args: args}
	careful = statement{
		sql: "WITH given AS MATERIALIZED " + sent + ", written AS (" + b.insertInto(names) + select1 + "given" + rest +
			" RETURNING " + b.keyColumns("t.") + ")" +
			" SELECT g.n FROM given AS g WHERE NOT EXISTS (SELECT FROM written AS w WHERE " + b.onKey("w", "g") + ") ORDER BY g.n",
		args: args,
	}
	return careless, careful
}

// insertInto begins the insert of the columns that travel, and the token.
func (b *Bulk) insertInto(names []string) string {
	columns := append(b.all(names), b.table.TokenColumn())
	return "INSERT INTO " + b.table.String() + " AS t (" + quoteAll(columns) + ") "
}

// onConflict compares the stored token, never the proposed one.
func (b *Bulk) onConflict(names []string) string {
	var s text
	s.add(" ON CONFLICT (", quoteAll(b.table.Key), ") DO UPDATE SET ")
	for _, name := range names {
		s.add(quote(name), " = EXCLUDED.", quote(name), ", ")
	}
	return s.add(quote(b.table.TokenColumn()), " = ", stamped, " WHERE ", b.stamp()).String()
}

// orderSQL sorts the keys of rows, and tells which of them is equal to the one before it.
func (b *Bulk) orderSQL(keys []array) statement {
	var s text
	s.add("SELECT u.n, coalesce(", list(len(b.table.Key), " AND ", func(i int) string {
		return b.collated("u", i) + " = lag(u." + column(i) + ") OVER sorted"
	}))
	s.add(", false) FROM ", b.sent(1, b.table.Key, keys), " AS u WINDOW sorted AS (ORDER BY ", b.inOrder("u"), ") ORDER BY ", b.inOrder("u"))
	return statement{sql: s.String(), args: appendArrays(nil, keys)}
}

// lookSQL reads the tokens of rows; NULL where there is no row.
func (b *Bulk) lookSQL(keys []array) statement {
	var s text
	s.add("SELECT u.n, t.", quote(b.table.TokenColumn()), " FROM ", b.sent(1, b.table.Key, keys), " AS u LEFT JOIN ",
		b.table.String(), " AS t ON ", b.onKey("t", "u"), " ORDER BY u.n")
	return statement{sql: s.String(), args: appendArrays(nil, keys)}
}
