package fence

import (
	"fmt"
	"slices"
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
	names := append([]string{t.Schema, t.Name, t.TokenColumn()}, t.Key...)
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
	}
	columns := append([]string{t.TokenColumn()}, t.Key...)
	slices.Sort(columns)
	if len(slices.Compact(columns)) != len(t.Key)+1 {
		return invalidf("table %s names a key or token column twice", t)
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

// statement gathers SQL and the arguments that it numbers.
type statement struct {
	strings.Builder
	args []any
}

// arg returns the placeholder of a value.
func (s *statement) arg(value any) string {
	s.args = append(s.args, value)
	return fmt.Sprintf("$%d", len(s.args))
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// comparison of the stored token with the writer's.
type comparison string

const (
	strictly    comparison = "<"  // a bare token: once per row
	withinClaim comparison = "<=" // under the guard alone: the holder may write again
)

// update builds the seed statement: the token is compared and stamped in the very statement that writes.
func (t Table) update(key Key, set Set, tok int64, stored comparison) *statement {
	columns := make([]string, 0, len(set))
	for column := range set {
		columns = append(columns, column)
	}
	slices.Sort(columns) // one text per set of columns, for the statement cache
	s := &statement{args: make([]any, 0, len(set)+len(key)+1)}
	stamp := s.arg(tok) + "::bigint"
	s.WriteString("UPDATE " + t.String() + " SET ")
	for _, column := range columns {
		s.WriteString(quote(column) + " = " + s.arg(set[column]) + ", ")
	}
	s.WriteString(quote(t.TokenColumn()) + " = " + stamp)
	t.where(s, key)
	s.WriteString(" AND " + quote(t.TokenColumn()) + " " + string(stored) + " " + stamp)
	return s
}

// look builds the second statement, which tells why the first changed nothing.
func (t Table) look(key Key) *statement {
	s := &statement{}
	s.WriteString("SELECT " + quote(t.TokenColumn()) + " FROM " + t.String())
	t.where(s, key)
	return s
}

// SelectSQL returns the text of a query that reads the given columns of the row whose key values are its
// arguments. Names are quoted and not checked: see [Table.Check].
func (t Table) SelectSQL(columns []string) string {
	s := &statement{}
	s.WriteString("SELECT " + quoteAll(columns) + " FROM " + t.String())
	t.where(s, make(Key, len(t.Key)))
	return s.String()
}

func (t Table) where(s *statement, key Key) {
	for i, column := range t.Key {
		word := " AND "
		if i == 0 {
			word = " WHERE "
		}
		s.WriteString(word + quote(column) + " = " + s.arg(key[i]))
	}
}
