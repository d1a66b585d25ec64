package pgtable

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// CheckNames refuses names that cannot be column names.
func CheckNames(columns []string) error {
	for _, column := range columns {
		if err := checkName(column); err != nil {
			return err
		}
	}
	return nil
}

// DefaultTokenColumn is the default name of the column that stores the highest token a row was written with.
const DefaultTokenColumn = "last_fencing_token"

// Table names a table by its parts. Each part is used unchanged and quoted: case counts, and a dot is a dot. ErrInvalid
// refuses parts that are empty, longer than PostgreSQL's 63 bytes (which it would truncate), not UTF-8 or with U+0000.
type Table struct {
	// Schema is required, so that search_path does not matter.
	Schema string
	// Name is the table's name.
	Name string
	// Key are the columns that identify a row, in the order in which a Key gives their values.
	Key []string
	// Token is the token column. Default DefaultTokenColumn.
	Token string
	// Protected says that the table has a protection (fencepost.protect), so the guard of a single statement informs
	// its trigger at once. Without it, the first such write of each connection to a protected table costs a refusal and
	// one retry; from then on the connection knows.
	Protected bool
}

// Key holds the values of a table's key columns, in their order.
type Key = []any

// Set holds the columns to write and their values.
type Set = map[string]any

// TokenColumn returns the name of the token column.
func (t Table) TokenColumn() string {
	if t.Token == "" {
		return DefaultTokenColumn
	}
	return t.Token
}

// String returns schema and name, quoted.
func (t Table) String() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// Check returns nil for a table that can be named in SQL, and otherwise an error that matches ErrInvalid. It does not
// ask the database whether the table exists.
func (t Table) Check() error {
	if len(t.Key) == 0 {
		return pgerr.Invalidf("table %s has no key columns", t)
	}
	// This is on the path of every write: it allocates nothing.
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
			return pgerr.Invalidf("table %s names a key or token column twice", t)
		}
	}
	return nil
}

func checkName(name string) error {
	const most = 63 // NAMEDATALEN - 1; PostgreSQL truncates longer names
	switch {
	case name == "":
		return pgerr.Invalidf("an identifier is empty")
	case len(name) > most:
		return pgerr.Invalidf("identifier %q has %d bytes, more than %d", name, len(name), most)
	case !encoding.IsText(name):
		return pgerr.Invalidf("identifier %q is not UTF-8 text without U+0000", name)
	}
	return nil
}

// CheckWrite refuses an invalid table, key or set before anything is sent.
func CheckWrite(t Table, key Key, set Set) error {
	if err := t.Check(); err != nil {
		return err
	}
	if err := CheckKey(t, key); err != nil {
		return err
	}
	for column := range set {
		if err := checkName(column); err != nil {
			return err
		}
		if column == t.TokenColumn() {
			return pgerr.Invalidf("column %q is written by the fence alone", column)
		}
	}
	return nil
}
