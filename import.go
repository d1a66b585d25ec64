package fencepost

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
)

// ImportOptions are the settings of an import. The zero value, and a nil pointer, mean the defaults.
type ImportOptions struct {
	// BatchRows is how many rows are written together, from 1 to 1,000. Default 1,000. While a batch is written it has
	// an advisory lock of PostgreSQL for each of its resources. The server's lock table has room for 6,400 by default,
	// so with many imports at the same time choose smaller batches, or raise max_locks_per_transaction.
	BatchRows int
	// Acquire are the settings of the leases of each batch. Default: the store's.
	Acquire *AcquireOptions
}

// Import writes rows of many resources, each under a lease of its own resource, which Import acquires and releases. It
// is for tables with [PerRow] or [PerGroup]; for many rows of one resource [Table.Load] needs one lease. Rows that do
// not exist are inserted, with defaults in the columns that are not named, and others are overwritten. columns names
// the columns of a source row, in order. It must include all key columns, and not the token column.
//
// The rows are written in batches, each of the next BatchRows rows of the source. A batch is read into memory, its
// leases are acquired as by [Store.AcquireAll], its rows are written in one transaction that is guarded by all of them,
// as by [Store.Tx], and the leases are released. If all leases are free, that transaction makes their claims as well,
// as [Store.Do] does. So a batch is written as a whole or not at all.
//
// While one batch is written, the next is read. If its leases are all free, they are acquired then; if not, none of
// them is kept until the batch before has been written and released. So a slow source delays nobody, imports with
// overlapping resources do not deadlock, and no resource is held for longer than two batches take.
//
// written is how many rows have been committed: always the first rows of the source, in its order. After an error a
// program can correct the cause and import the rest of the source. With ErrOutcomeUnknown the next batch may have been
// committed as well; it may be imported again, if the source still says what is to be in the rows.
//
// If another holder has the lease of a row, the import waits for it until ctx ends. Meanwhile it holds the leases of
// its batch that come before that one by name. With AcquireOptions.NoWait it ends with a *HeldError, which names the
// resource.
//
// A key that is given twice within a batch is ErrInvalid, and nothing of that batch is written. If it is given twice at
// a greater distance, the later row overwrites the earlier one. If a row carries a higher token, or the database does
// not let it change, the *BatchError lists each such row of its batch, with its index in the source. Nothing heals: if
// rows are ahead of their fence, adopt the table first.
//
// The source is read by the caller's goroutine. Its values are encoded and sent by another one, while later rows are
// read, so they must not change any more, except that a []byte is copied. If an event's handler or the encoding of a
// value panics, Import panics with the same value. Import checks ctx before each row, and returns the source's error as
// it is. Other errors are those of AcquireAll, of Tx, and of [Table.UpsertBatch]; ErrInvalid also for options out of
// range. ctx bounds the call, except the release of leases and settling the outcome of a COMMIT.
func (t *Table[T]) Import(
	ctx context.Context, columns []string, source pgx.CopyFromSource, opts *ImportOptions,
) (written int64, err error) {
	if err := outsideTx(ctx); err != nil {
		return 0, err
	}
	im, err := t.newImport(columns, source, opts)
	if err != nil {
		return 0, err
	}
	defer im.end(ctx) // also if the source panics
	err = im.run(ctx)
	im.released()
	return im.written, err
}

// importing is one import.
//
// While the transaction of one batch writes, the next batch is read, and its leases are asked for; and the leases of
// the batch before are released.
//
// Invariants:
//   - One transaction is open at a time, and the batches are committed in the order of the source.
//   - While an import waits for a lease, it holds only leases that come before that one, all of one batch. So the
//     leases of the next batch are only tried once the batch before has all of its leases. If one of them is not free,
//     all are given back. They are acquired, and waited for, once the batch before has been written and released.
//   - The source, and with it whatever is slow about it, is read by the caller's goroutine, which holds nothing by
//     itself: the batch that is being written goes on to its release meanwhile.
type importing[T any] struct {
	table     *Table[T]
	columns   []string
	places    []int // of the key columns in a row of the source
	source    pgx.CopyFromSource
	batchRows int
	acquire   *AcquireOptions
	enters    bool // the transactions tell the table's protection about their claims
	text      []byte

	read    int64        // rows of the source
	written int64        // rows that were committed
	ended   *importBatch // its leases may still be in release
	writing *importBatch
	ahead   *importBatch // its leases have been asked for
}

func (t *Table[T]) newImport(
	columns []string, source pgx.CopyFromSource, opts *ImportOptions,
) (*importing[T], error) {
	if source == nil {
		return nil, invalidf("an import without a source")
	}
	var o ImportOptions
	if opts != nil {
		o = *opts
	}
	if o.BatchRows == 0 {
		o.BatchRows = pgclaim.MaxTogether
	}
	if o.BatchRows < 1 || o.BatchRows > pgclaim.MaxTogether {
		return nil, invalidf("BatchRows %d is outside 1 to %d", o.BatchRows, pgclaim.MaxTogether)
	}
	im := &importing[T]{
		table: t, columns: slices.Clone(columns), source: source, batchRows: o.BatchRows, acquire: o.Acquire,
		places: make([]int, len(t.table.Key)), enters: t.table.Protected,
	}
	for i, name := range t.table.Key {
		if im.places[i] = slices.Index(columns, name); im.places[i] < 0 {
			return nil, invalidf("key column %q is not among the columns of the import", name)
		}
	}
	for i, name := range columns {
		if slices.Contains(columns[:i], name) {
			return nil, invalidf("column %q is named twice", name)
		}
	}
	return im, nil
}

// run imports the batches, one after the other.
func (im *importing[T]) run(ctx context.Context) error {
	for more := true; more; {
		b := &importBatch{}
		var err error
		if more, err = im.next(ctx, b); err == nil && len(b.rows) > 0 && im.writing != nil {
			im.try(ctx, b)
		}
		if failed := im.outcome(); failed != nil {
			return failed
		}
		if err != nil || len(b.rows) == 0 {
			return err
		}
		im.start(ctx, b)
	}
	return im.outcome()
}

// next reads the next batch, and checks it. more is false if the source has no further row.
func (im *importing[T]) next(ctx context.Context, b *importBatch) (more bool, err error) {
	b.first = im.read
	b.rows, b.resources = make([]Change, 0, im.batchRows), make([]string, 0, im.batchRows)
	for more = true; more && len(b.rows) < im.batchRows; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if more = im.source.Next(); !more {
			if err := im.source.Err(); err != nil {
				return false, err
			}
			break
		}
		values, err := im.source.Values()
		if err != nil {
			return false, err
		}
		if err := im.add(b, values); err != nil {
			return false, err
		}
		im.read++
	}
	if len(b.rows) == 0 {
		return more, nil
	}
	if b.batch, err = im.table.batches.Batch(b.rows); err != nil {
		return false, err
	}
	b.sortNames()
	return more, im.table.store.checkNames(ctx, b.names)
}

func (im *importing[T]) add(b *importBatch, values []any) error {
	if len(values) != len(im.columns) {
		return invalidf("row %d has %d values, not %d", im.read, len(values), len(im.columns))
	}
	key := make(Key, len(im.places))
	for i, place := range im.places {
		key[i] = keptUntilSent(values[place])
	}
	text, key, err := im.table.resource(im.text[:0], key)
	if err != nil {
		return invalidf("row %d: %w", im.read, err)
	}
	im.text = text
	set := make(Set, len(values)-len(key))
	for i, name := range im.columns {
		if !slices.Contains(im.places, i) {
			set[name] = keptUntilSent(values[i])
		}
	}
	b.rows = append(b.rows, Change{Key: key, Set: set})
	b.resources = append(b.resources, string(text))
	return nil
}

// keptUntilSent copies a value that the source may overwrite before the batch is sent.
func keptUntilSent(value any) any {
	if bytes, ok := value.([]byte); ok {
		return slices.Clone(bytes)
	}
	return value
}
