package fence

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Change is one row of a batch: its key, and the columns to write.
type Change struct {
	Key Key
	Set Set
}

// ManyOptions are the settings of a batch or a load. The zero value, and a nil pointer, mean the defaults.
type ManyOptions struct {
	// Partial writes the rows that can be written and reports the others. Default: all rows, or none.
	Partial bool
}

func (o *ManyOptions) partial() bool { return o != nil && o.Partial }

// Bulk writes many rows of one table at once. It is safe for concurrent use.
type Bulk struct {
	table   Table
	columns map[string]Column
}

// NewBulk makes a Bulk of a table and its columns, as [Inspect] returned them. It sends nothing. A column that is
// added to the table later is unknown to it, and a key or token column that is not among the columns is ErrInvalid.
func NewBulk(t Table, columns []Column) (*Bulk, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	b := &Bulk{table: t, columns: make(map[string]Column, len(columns))}
	b.table.Key = slices.Clone(t.Key)
	for _, c := range columns {
		b.columns[c.Name] = c
	}
	for _, name := range append(slices.Clone(t.Key), t.TokenColumn()) {
		if _, ok := b.columns[name]; !ok {
			return nil, invalidf("table %s has no column %q", t, name)
		}
	}
	return b, nil
}

// Batch is rows to be written together. It is made by [Bulk.Batch], changes nothing in the rows, and may be
// written more than once; the rows must stay as they are until then. It is safe for concurrent use.
type Batch struct {
	bulk  *Bulk
	rows  []Change
	names []string // of the columns written, sorted
}

// Batch checks rows that are to be written together, and sends nothing. All rows set the same columns, and no key
// stands twice. Keys that differ in Go and are one in PostgreSQL, as some texts of a citext are, are found
// when the batch is written. Every error matches ErrInvalid.
func (b *Bulk) Batch(rows []Change) (*Batch, error) {
	batch := &Batch{bulk: b, rows: rows}
	if len(rows) == 0 {
		return batch, nil
	}
	for name := range rows[0].Set {
		batch.names = append(batch.names, name)
	}
	slices.Sort(batch.names) // one text per set of columns, for the statement cache
	if err := b.checkWritten(batch.names); err != nil {
		return nil, err
	}
	for i, row := range rows {
		if len(row.Key) != len(b.table.Key) {
			return nil, invalidf("row %d: a key of %s has %d values, not %d", i, b.table, len(b.table.Key), len(row.Key))
		}
		if !sameColumns(row.Set, batch.names) {
			return nil, invalidf("row %d, %v: all rows of a batch set the same columns, here %q", i, row.Key, batch.names)
		}
	}
	return batch, b.checkTwice(rows)
}

// checkWritten refuses columns that no write names.
func (b *Bulk) checkWritten(names []string) error {
	for i, name := range names {
		column, ok := b.columns[name]
		switch {
		case !ok:
			return invalidf("table %s had no column %q when it was declared", b.table, name)
		case name == b.table.TokenColumn():
			return invalidf("column %q is written by the fence alone", name)
		case slices.Contains(b.table.Key, name):
			return invalidf("column %q is part of the key of %s", name, b.table)
		case slices.Contains(names[:i], name):
			return invalidf("column %q is named twice", name)
		case column.Generated:
			return invalidf("column %q of %s is generated", name, b.table)
		}
	}
	return nil
}

// checkGiven refuses columns that an insert cannot give.
func (b *Bulk) checkGiven(names []string) error {
	for _, name := range b.all(names) {
		if b.columns[name].IdentityAlways {
			return invalidf("column %q of %s is GENERATED ALWAYS AS IDENTITY, and takes no given value", name, b.table)
		}
	}
	return nil
}

func sameColumns(set Set, names []string) bool {
	if len(set) != len(names) {
		return false
	}
	for _, name := range names {
		if _, ok := set[name]; !ok {
			return false
		}
	}
	return true
}

// checkTwice refuses a key that stands twice, by the text that PostgreSQL is sent: one text is one value.
func (b *Bulk) checkTwice(rows []Change) error {
	if rising(rows) {
		return nil
	}
	codec := pgtype.NewMap()
	seen := make(map[string]int, len(rows))
	var text []byte
	for i, row := range rows {
		text = text[:0]
		known := true
		for j, name := range b.table.Key {
			from := len(text)
			text = binary.BigEndian.AppendUint32(text, 0) // room for the length, so that two values do not run together
			text, known = appendKeyText(text, codec, b.columns[name].BaseOID, row.Key[j])
			if !known {
				break
			}
			binary.BigEndian.PutUint32(text[from:], uint32(len(text)-from)) //nolint:gosec // a length
		}
		if !known {
			continue // of a type that the connection may know: PostgreSQL will tell
		}
		if first, twice := seen[string(text)]; twice {
			return invalidf("rows %d and %d have the same key %v", first, i, row.Key)
		}
		seen[string(text)] = i
	}
	return nil
}

// rising reports whether the keys are one integer each, or one string, and each is above the one before: as they
// often are, and then none stands twice.
func rising(rows []Change) bool {
	for i := range len(rows) - 1 {
		a, b := rows[i].Key, rows[i+1].Key
		if len(a) != 1 || len(b) != 1 {
			return false
		}
		n, first := asInteger(a[0])
		m, second := asInteger(b[0])
		s, third := a[0].(string)
		t, fourth := b[0].(string)
		if first && second && n < m || third && fourth && s < t {
			continue
		}
		return false
	}
	return true
}

func appendKeyText(text []byte, codec *pgtype.Map, oid uint32, value any) ([]byte, bool) {
	if n, ok := asInteger(value); ok {
		return strconv.AppendInt(text, n, 10), true
	}
	if s, ok := value.(string); ok {
		return append(text, s...), true
	}
	encoded, err := codec.Encode(oid, pgtype.TextFormatCode, value, nil)
	return append(text, encoded...), err == nil && encoded != nil
}

// Update writes the rows under a claim, in tx: all of them or none. It guards tx itself.
//
// Nothing is written where a row is stale, missing or refused: a *ManyError lists every such row, a stale one
// with the token that it carries, and tx has been aborted, so that nothing in it commits even where the error is
// overlooked. With [ManyOptions.Partial] the other rows are written and tx goes on.
//
// A batch has its resource to itself, or takes its rows in the order of their keys: two batches do not deadlock.
// Big ones are sent in parts. An empty one only guards.
//
// Errors besides: *StaleError from the fence; ErrInvalid where two keys are one in PostgreSQL, or a value cannot
// be encoded, or rows of another query of tx are open still; ErrUnavailable; errors of the server with their SQLSTATE.
// After any of them tx is to be rolled back, and where rows may have been written it has been aborted, except in part;
// 40001 and 40P01 ask for all of it again. ctx bounds the call.
func (b *Batch) Update(ctx context.Context, tx pgx.Tx, c Claim, opts *ManyOptions) error {
	if len(b.names) == 0 && len(b.rows) > 0 {
		return invalidf("an update of %s without columns", b.bulk.table)
	}
	return b.write(ctx, tx, c, opts, b.bulk.updateSQL, false)
}

// Upsert is [Batch.Update], except that a row that is not there is inserted. Columns that are not named get their
// defaults then. What is compared is the token that is stored, never the one proposed.
func (b *Batch) Upsert(ctx context.Context, tx pgx.Tx, c Claim, opts *ManyOptions) error {
	if err := b.bulk.checkGiven(b.names); err != nil {
		return err
	}
	return b.write(ctx, tx, c, opts, b.bulk.upsertSQL, true)
}
