package fencepost

import (
	"context"
	"slices"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// TableSpec declares a table whose rows are shared.
type TableSpec struct {
	// Schema and Name are the table's, taken literally: case matters, and a dot is part of the name.
	Schema, Name string
	// Key are the columns of the primary key or of another total unique constraint.
	Key []string
	// TokenColumn is the column that stores a row's token. Default "last_fencing_token".
	TokenColumn string
	// Resource determines which resource a row belongs to: [PerRow], [PerGroup] or [Constant]. Every program that
	// writes the table must use the same rule. Required.
	Resource ResourceRule
}

// Table reads and writes the rows of one table under leases. T is a struct whose exported fields stand for columns.
// They are matched as pgx.RowToStructByName does it: by `db` tag, or by name, ignoring case and underscores. The fields
// determine which columns are read. Each write names its columns. A Table is safe for concurrent use.
//
// Values of a key may be of any type that pgx can encode for their column. Each call returns ErrInvalid, before
// anything is sent, for a key whose row belongs to another resource than the lease's.
type Table[T any] struct {
	store   *Store
	table   pgtable.Table
	rule    *rule
	known   map[string]pgtable.Column
	fields  []field  // of T, in the order they are read
	columns []string // of the fields
	read    string   // SELECT of one row
	writer  *pgrow.Writer
	batches *pgbatch.BatchWriter
}

// NewTable declares a table to a store. It checks once, in the catalog, whether the table can be fenced. It can be
// fenced if
//   - it is an ordinary or a partitioned table, not temporary, and no other table inherits from it;
//   - its token column is bigint, or a domain over it, NOT NULL, and neither generated nor an identity;
//   - its key columns are NOT NULL, not generated, and together a primary key or another total unique index;
//   - the rule's columns are of the types that [ResourceRule] names;
//   - each field of T is a column that this user may SELECT;
//   - this user has USAGE on its schema, SELECT on the key columns and the token column, and UPDATE on the token column
//     (other privileges are checked when a call needs them);
//   - its protection, if it has one (fencepost.protect), is of the same namespace, rule and token column. Otherwise it
//     would refuse every write, or guard the rows by other resources than this program does. A table that has taken the
//     place of a protected one, by a rename for instance, needs a protection of its own.
//
// Otherwise the error matches ErrTable and says what is wrong. Other errors are ErrInvalid, before anything is sent,
// and ErrUnavailable. ctx bounds the call.
func NewTable[T any](ctx context.Context, s *Store, spec TableSpec) (*Table[T], error) {
	if s == nil {
		return nil, invalidf("a table needs a store")
	}
	return declare[T](ctx, s, spec)
}

func declare[T any](ctx context.Context, s *Store, spec TableSpec) (*Table[T], error) {
	table := pgtable.Table{Schema: spec.Schema, Name: spec.Name, Key: slices.Clone(spec.Key), Token: spec.TokenColumn}
	if err := spec.Resource.check(table.Key); err != nil {
		return nil, err
	}
	known, err := pgtable.Inspect(ctx, s.pool, table)
	if err != nil {
		return nil, err
	}
	compiled, err := spec.Resource.compile(table, known)
	if err != nil {
		return nil, err
	}
	if table.Protected, err = spec.Resource.checkProtection(ctx, s, table); err != nil {
		return nil, err
	}
	fields, err := fieldsOf[T](table.String(), known)
	if err != nil {
		return nil, err
	}
	t := &Table[T]{
		store:  s,
		table:  table,
		rule:   compiled,
		fields: fields,
		writer: pgrow.NewWriter(table),
		known:  make(map[string]pgtable.Column, len(known)),
	}
	for _, c := range known {
		t.known[c.Name] = c
	}
	for _, f := range fields {
		t.columns = append(t.columns, f.column)
	}
	t.read = pgrow.SelectSQL(table, t.columns)
	t.batches, err = pgbatch.NewBatchWriter(table, known)
	return t, err
}

// Resource returns the resource that the row with a key belongs to. Acquire it to work on the row. Resource sends
// nothing. The error matches ErrInvalid if the number of values is wrong, if one is NULL, or if one does not fit the
// column's type.
func (t *Table[T]) Resource(key Key) (string, error) {
	text, _, err := t.resource(nil, key)
	return string(text), err
}

func (t *Table[T]) resource(buf []byte, key Key) ([]byte, Key, error) {
	if err := pgtable.CheckKey(t.table, key); err != nil {
		return nil, nil, err
	}
	return t.rule.resource(buf, key)
}

// takes refuses a lease under which the table's own transactions cannot write.
func (t *Table[T]) takes(l *Lease) error {
	if l == nil || l.store != t.store {
		return invalidf("the lease is nil or of another store")
	}
	return l.checkClaimed()
}

// check refuses invalid arguments before anything is sent, and a lease that is over. It returns the key in the form in
// which it is sent (see rule.resource).
func (t *Table[T]) check(ctx context.Context, l *Lease, key Key) (Key, error) {
	if err := outsideTx(ctx); err != nil {
		return nil, err
	}
	if err := t.takes(l); err != nil {
		return nil, err
	}
	var room [64]byte
	text, key, err := t.resource(room[:0], key)
	if err != nil {
		return nil, err
	}
	if string(text) != l.resource {
		return nil, t.ofAnother(l, key, string(text))
	}
	return key, l.Err()
}

// ofAnother is the error of a row that belongs to another resource than the lease.
func (t *Table[T]) ofAnother(l *Lease, key Key, resource string) error {
	return invalidf("row %v of %s belongs to resource %q, and the lease is for %q", key, t.table, resource, l.resource)
}
