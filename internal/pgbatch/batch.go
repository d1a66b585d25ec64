package pgbatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// Change is one row of a batch: its key, and the columns to write.
type Change struct {
	Key pgtable.Key
	Set pgtable.Set
}

// BatchOptions are the settings of a batch or a load. The zero value, and a nil pointer, mean the defaults.
type BatchOptions struct {
	// Partial writes the rows that can be written and reports the others. Default: all rows, or none.
	Partial bool
}

func (o *BatchOptions) partial() bool { return o != nil && o.Partial }

// BatchWriter writes many rows of one table at once. It is safe for concurrent use.
type BatchWriter struct {
	table   pgtable.Table
	columns map[string]pgtable.Column
	rounds  bool // see sentAs
}

// rounding returns a writer that rounds keys.
func (b *BatchWriter) rounding() *BatchWriter {
	r := *b
	r.rounds = true
	return &r
}

// NewBatchWriter makes a BatchWriter for a table and its columns, as returned by [Inspect]. It sends nothing. The
// writer does not know columns that are added to the table later. If a key or token column is missing from the columns,
// the error is ErrInvalid.
func NewBatchWriter(t pgtable.Table, columns []pgtable.Column) (*BatchWriter, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	b := &BatchWriter{table: t, columns: make(map[string]pgtable.Column, len(columns))}
	b.table.Key = slices.Clone(t.Key)
	for _, c := range columns {
		b.columns[c.Name] = c
	}
	for _, name := range append(slices.Clone(t.Key), t.TokenColumn()) {
		if _, ok := b.columns[name]; !ok {
			return nil, pgerr.Invalidf("table %s has no column %q", t, name)
		}
	}
	return b, nil
}

// Batch is a set of rows to be written together, made by [BatchWriter.Batch]. It does not change the rows and may be
// written more than once; the rows must not change until then. It is safe for concurrent use.
type Batch struct {
	writer *BatchWriter
	rows   []Change
	names  []string // of the columns written, sorted
}

// Batch checks rows that are to be written together, and sends nothing. All rows must set the same columns, and no key
// may appear twice. Keys that differ in Go but are equal in PostgreSQL, as some citext values are, are found when the
// batch is written. Every error matches ErrInvalid.
func (b *BatchWriter) Batch(rows []Change) (*Batch, error) {
	batch := &Batch{writer: b, rows: rows}
	if len(rows) == 0 {
		return batch, nil
	}
	for name := range rows[0].Set {
		batch.names = append(batch.names, name)
	}
	slices.Sort(batch.names) // the same text for the same set of columns, for the statement cache
	if err := b.checkWritten(batch.names); err != nil {
		return nil, err
	}
	for i, row := range rows {
		if err := pgtable.CheckKey(b.table, row.Key); err != nil {
			return nil, pgerr.Doing(fmt.Sprintf("row %d", i), err)
		}
		if !sameColumns(row.Set, batch.names) {
			return nil, pgerr.Invalidf("row %d, %v: all rows of a batch set the same columns, here %q", i, row.Key, batch.names)
		}
	}
	return batch, b.checkTwice(rows)
}

// checkWritten refuses columns that no write may set.
func (b *BatchWriter) checkWritten(names []string) error {
	for i, name := range names {
		column, ok := b.columns[name]
		switch {
		case !ok:
			return pgerr.Invalidf("table %s had no column %q when it was declared", b.table, name)
		case name == b.table.TokenColumn():
			return pgerr.Invalidf("column %q is written by the fence alone", name)
		case slices.Contains(b.table.Key, name):
			return pgerr.Invalidf("column %q is part of the key of %s", name, b.table)
		case slices.Contains(names[:i], name):
			return pgerr.Invalidf("column %q is named twice", name)
		case column.Generated:
			return pgerr.Invalidf("column %q of %s is generated", name, b.table)
		}
	}
	return nil
}

// checkGiven refuses columns that an insert may not set.
func (b *BatchWriter) checkGiven(names []string) error {
	for _, name := range b.all(names) {
		if b.columns[name].IdentityAlways {
			return pgerr.Invalidf("column %q of %s is GENERATED ALWAYS AS IDENTITY, and takes no given value", name, b.table)
		}
	}
	return nil
}

func sameColumns(set pgtable.Set, names []string) bool {
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

// checkTwice refuses a key that appears twice, by the text that is sent to PostgreSQL: equal texts are equal values.
func (b *BatchWriter) checkTwice(rows []Change) error {
	if rising(rows) {
		return nil
	}
	texts, ends := b.keyTexts(rows)
	seen := make(map[string]int, len(rows))
	from := 0
	for i, end := range ends {
		text := texts[from:end]
		from = end
		if text == "" {
			continue // of a type that the connection may know: PostgreSQL will check
		}
		if first, twice := seen[text]; twice {
			return pgerr.Invalidf("rows %d and %d have the same key %v", first, i, rows[i].Key)
		}
		seen[text] = i
	}
	return nil
}

// keyTexts returns the texts of all keys as one, and where each ends. A key that cannot be encoded here has none.
func (b *BatchWriter) keyTexts(rows []Change) (texts string, ends []int) {
	codec := pgtype.NewMap()
	all, ends := make([]byte, 0, 16*len(rows)), make([]int, len(rows))
	for i, row := range rows {
		begin := len(all)
		for j, name := range b.table.Key {
			var known bool
			from := len(all)
			all = binary.BigEndian.AppendUint32(all, 0) // room for the length, so that two values do not run together
			if all, known = appendKeyText(all, codec, b.columns[name].BaseOID, row.Key[j]); !known {
				all = all[:begin]
				break
			}
			binary.BigEndian.PutUint32(all[from:], uint32(len(all)-from)) //nolint:gosec // a length
		}
		ends[i] = len(all)
	}
	return string(all), ends
}

// rising reports whether each key is one integer or one string, and each is above the one before. Then, as is common,
// none appears twice.
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
// If a row is stale, missing or refused, nothing is written. A *BatchError lists every such row, a stale one with the
// token that it carries, and tx has been aborted, so nothing in it commits even if the error is ignored. With
// [BatchOptions.Partial] the other rows are written and tx continues.
//
// A batch has its resource to itself, or locks its rows in the order of their keys, so two batches do not deadlock. Big
// batches are sent in parts. An empty one only guards.
//
// Other errors: *StaleError from the fence; ErrInvalid if two keys are equal in PostgreSQL, a value cannot be encoded,
// or rows of another query of tx are still open; ErrUnavailable; errors of the server with their SQLSTATE. After any of
// them the caller must roll tx back. If rows may have been written, tx has been aborted, except with Partial. After
// 40001 and 40P01 the whole transaction may be retried. ctx bounds the call.
func (b *Batch) Update(ctx context.Context, tx pgx.Tx, c pgclaim.Claim, opts *BatchOptions) error {
	if len(b.names) == 0 && len(b.rows) > 0 {
		return pgerr.Invalidf("an update of %s without columns", b.writer.table)
	}
	_, err := b.write(ctx, tx, c, opts, b.writer.updateSQL, false)
	return err
}

// Upsert is [Batch.Update], but it inserts rows that do not exist, and returns how many it inserted. With
// [BatchOptions.Partial] it does so along with a *BatchError too; with any other error it returns 0. Columns that are
// not named get their defaults. It compares the stored token, never the proposed one.
func (b *Batch) Upsert(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, opts *BatchOptions,
) (inserted int, err error) {
	if err := b.writer.checkGiven(b.names); err != nil {
		return 0, err
	}
	return b.write(ctx, tx, c, opts, b.writer.upsertSQL, true)
}
