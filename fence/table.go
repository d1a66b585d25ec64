package fence

import (
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DefaultTokenColumn is the column of a row that remembers the highest token it was written with.
const DefaultTokenColumn = "last_fencing_token"

// Table names a table by its parts. Each part is taken as it stands and quoted: case counts, and a
// dot is a dot. Parts that are empty, longer than PostgreSQL's 63 bytes (which it would cut), not UTF-8 or
// with U+0000 are refused with ErrInvalid.
type Table struct {
	// Schema is required, so that search_path cannot matter.
	Schema string
	// Name is the table's name.
	Name string
	// Key are the columns that tell a row, in the order in which a Key gives their values.
	Key []string
	// Token is the token column. Default DefaultTokenColumn.
	Token string
	// Protected says that the table has a door (fencepost.protect), so that the guard of a single statement leaves word
	// for its trigger at once. A protected table without it costs each such write a refusal and one more try.
	Protected bool
}

// Key holds the values of a table's key columns, in their order.
type Key []any

// Set holds the columns to write and their values.
type Set map[string]any

// TokenColumn returns the name of the token column.
func (t Table) TokenColumn() string {
	if t.Token == "" {
		return DefaultTokenColumn
	}
	return t.Token
}

// String returns schema and name, quoted.
func (t Table) String() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// Check returns nil for a table that can be named in SQL and otherwise an error that matches
// ErrInvalid. It does not ask the database whether the table exists.
func (t Table) Check() error {
	if len(t.Key) == 0 {
		return invalidf("table %s has no key columns", t)
	}
	// On the path of every write: nothing is allocated here.
	for _, name := range [...]string{t.Schema, t.Name, t.TokenColumn()} {
		if err := checkName(name); err != nil {
			return err
		}
	}
	for i, column := range t.Key {
		if err := checkName(column); err != nil {
			return err
		}
		if column == t.TokenColumn() || slices.Contains(t.Key[:i], column) {
			return invalidf("table %s names a key or token column twice", t)
		}
	}
	return nil
}

func checkName(name string) error {
	const most = 63 // NAMEDATALEN - 1; PostgreSQL cuts what is longer
	switch {
	case name == "":
		return invalidf("an identifier is empty")
	case len(name) > most:
		return invalidf("identifier %q has %d bytes, more than %d", name, len(name), most)
	case !isText(name):
		return invalidf("identifier %q is not UTF-8 text without U+0000", name)
	}
	return nil
}

func (t Table) checkWrite(key Key, set Set) error {
	if err := t.Check(); err != nil {
		return err
	}
	if len(key) != len(t.Key) {
		return invalidf("a key of %s has %d values, not %d", t, len(t.Key), len(key))
	}
	for column := range set {
		if err := checkName(column); err != nil {
			return err
		}
		if column == t.TokenColumn() {
			return invalidf("column %q is written by the fence alone", column)
		}
	}
	return nil
}

// comparison of the stored token with the writer's.
type comparison string

const (
	strictly    comparison = "<"  // a bare token: once per row
	withinClaim comparison = "<=" // under the guard alone: the holder may write again
)

// statement is SQL and the arguments that it numbers. It is built anew for each write, on the stack
// where it fits into a room: next to a round trip that costs little, and a cache would need an owner.
type statement struct {
	sql  string
	args []any
}

type room [512]byte

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// appendName appends an identifier, quoted, from its parts.
func appendName(sql []byte, parts ...string) []byte {
	for i, part := range parts {
		if i > 0 {
			sql = append(sql, '.')
		}
		if strings.ContainsAny(part, "\"\x00") {
			sql = append(sql, quote(part)...)
			continue
		}
		sql = append(append(append(sql, '"'), part...), '"')
	}
	return sql
}

// appendArg appends the placeholder of the argument with a number, which starts at 1.
func appendArg(sql []byte, number int) []byte {
	return strconv.AppendInt(append(sql, '$'), int64(number), 10)
}

// update builds the seed statement: the token is compared and stamped in the very statement that writes.
func (t Table) update(key Key, set Set, tok int64, stored comparison) statement {
	var r room
	const stamp = "$1::bigint"
	args := append(make([]any, 0, 1+len(set)+len(key)+guardArgs), tok)
	sql := append(r[:0], "UPDATE "...)
	sql = appendName(sql, t.Schema, t.Name)
	sql = append(sql, " SET "...)
	columns := make([]string, 0, 8)
	for column := range set {
		columns = append(columns, column)
	}
	slices.Sort(columns) // one text per set of columns, for the statement cache
	for _, column := range columns {
		args = append(args, set[column])
		sql = append(appendName(sql, column), " = "...)
		sql = append(appendArg(sql, len(args)), ", "...)
	}
	sql = append(appendName(sql, t.TokenColumn()), " = "+stamp...)
	sql = t.appendWhere(sql, len(args))
	sql = append(appendName(append(sql, " AND "...), t.TokenColumn()), ' ')
	sql = append(append(sql, stored...), " "+stamp...)
	return statement{sql: string(sql), args: append(args, key...)}
}

// look builds the second statement, which tells why the first changed nothing.
func (t Table) look(key Key) statement {
	return statement{sql: t.SelectSQL([]string{t.TokenColumn()}), args: key}
}

// SelectSQL returns the text of a query that reads the given columns of the row whose key values are its
// arguments. Names are quoted and not checked: see [Table.Check].
func (t Table) SelectSQL(columns []string) string {
	var r room
	sql := append(r[:0], "SELECT "...)
	sql = append(append(sql, quoteAll(columns)...), " FROM "...)
	return string(t.appendWhere(appendName(sql, t.Schema, t.Name), 0))
}

// appendWhere compares the key columns with the arguments that follow those numbered so far.
func (t Table) appendWhere(sql []byte, numbered int) []byte {
	word := " WHERE "
	for i, column := range t.Key {
		sql = append(appendName(append(sql, word...), column), " = "...)
		sql = appendArg(sql, numbered+i+1)
		word = " AND "
	}
	return sql
}
