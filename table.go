package fencepost

import (
	"context"
	"slices"

	"github.com/fencepost-pg/fencepost/fence"
)

// TableSpec declares a table whose rows are shared.
type TableSpec struct {
	// Schema and Name are the table's, as they stand: case counts, and a dot is a dot.
	Schema, Name string
	// Key are the columns of the primary key or of another total unique constraint.
	Key []string
	// TokenColumn is the column that remembers a row's token. Default "last_fencing_token".
	TokenColumn string
	// Resource says which resource a row belongs to: [PerRow], [PerGroup] or [Constant]. Every program that writes
	// the table agrees on it. Required.
	Resource ResourceRule
}

// Table reads and writes the rows of one table under leases. T is a struct whose exported fields
// are columns, matched as pgx.RowToStructByName does: by `db` tag, or by name without regard to
// case and underscores. Fields choose what is read; what is written is named call by call. It is safe for
// concurrent use.
//
// Values of a key are of any type that pgx can encode for their column. Each call refuses a key whose row
// belongs to another resource than its lease's with ErrInvalid, before anything is sent.
type Table[T any] struct {
	store   *Store
	table   fence.Table
	rule    *rule
	known   map[string]fence.Column
	fields  []field  // of T, in the order they are read
	columns []string // of the fields
	read    string   // SELECT of one row
	bulk    *fence.Bulk
}

// NewTable declares a table to a store. It asks the catalog once whether the table can be fenced: see
// [fence.Inspect] for what that takes. Besides, each field of T is a column that this user may SELECT, and the
// rule's columns are of the types that [ResourceRule] names. A table with a door (fencepost.protect) has it by the same
// namespace, rule and token column: it would refuse every write, or guard the rows by other resources than this program
// does. Otherwise the error matches ErrTable and says what is
// wrong. Other errors: ErrInvalid before anything is sent, ErrUnavailable. ctx bounds the call.
func NewTable[T any](ctx context.Context, s *Store, spec TableSpec) (*Table[T], error) {
	if s == nil {
		return nil, invalidf("a table needs a store")
	}
	if s.inOne != nil {
		return nil, errInOne
	}
	table := fence.Table{Schema: spec.Schema, Name: spec.Name, Key: slices.Clone(spec.Key), Token: spec.TokenColumn}
	if err := spec.Resource.check(table.Key); err != nil {
		return nil, err
	}
	known, err := fence.Inspect(ctx, s.pool, table)
	if err != nil {
		return nil, err
	}
	compiled, err := spec.Resource.compile(table, known)
	if err != nil {
		return nil, err
	}
	if table.Protected, err = spec.Resource.checkDoor(ctx, s, table); err != nil {
		return nil, err
	}
	fields, err := fieldsOf[T](table.String(), known)
	if err != nil {
		return nil, err
	}
	t := &Table[T]{store: s, table: table, rule: compiled, fields: fields, known: make(map[string]fence.Column, len(known))}
	for _, c := range known {
		t.known[c.Name] = c
	}
	for _, f := range fields {
		t.columns = append(t.columns, f.column)
	}
	t.read = table.SelectSQL(t.columns)
	t.bulk, err = fence.NewBulk(table, known)
	return t, err
}

// Resource returns the resource that the row with a key belongs to: the one to acquire in order to work on
// it. It sends nothing. The error matches ErrInvalid: a wrong number of values, NULL, or a value that the
// column's type has no room for.
func (t *Table[T]) Resource(key Key) (string, error) {
	text, _, err := t.resource(nil, key)
	return string(text), err
}

func (t *Table[T]) resource(buf []byte, key Key) ([]byte, Key, error) {
	if len(key) != len(t.table.Key) {
		return nil, nil, invalidf("a key of %s has %d values, not %d", t.table, len(t.table.Key), len(key))
	}
	return t.rule.resource(buf, key)
}

// check refuses what cannot be before any traffic, and a lease that is over. It returns the key as it is to
// be sent (see rule.resource).
func (t *Table[T]) check(ctx context.Context, l *Lease, key Key) (Key, error) {
	if err := outsideTx(ctx); err != nil {
		return nil, err
	}
	if l == nil || l.store != t.store {
		return nil, invalidf("the lease is nil or of another store")
	}
	var room [64]byte
	text, key, err := t.resource(room[:0], key)
	if err != nil {
		return nil, err
	}
	if string(text) != l.resource {
		return nil, invalidf("row %v of %s belongs to resource %q, and the lease is for %q", key, t.table, text, l.resource)
	}
	return key, l.Err()
}
