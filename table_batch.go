package fencepost

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
)

// Change is one row of a batch: its key, and the columns to write. Its fields are
//
//	Key Key  // the values of the key columns, in their order
//	Set Set  // the columns to write and their values; all rows of a batch set the same columns
type Change = pgbatch.Change

// BatchOptions are the settings of a batch or a load. The zero value, and a nil pointer, mean the defaults. The field
// is
//
//	Partial bool  // write the rows that can be written, and report the others; default: all rows, or none
type BatchOptions = pgbatch.BatchOptions

// BatchError says which rows of a batch or a load were not written, and why each. errors.Is and errors.As see the
// outcome of every row that it lists: a batch with a stale row and a missing one matches ErrStale and ErrNotFound. The
// method Failed returns how many rows were not written for a reason of their own. Its fields are
//
//	Table    string      // schema and name, quoted
//	Rows     int         // how many rows were given
//	Written  int         // how many rows were written: 0, unless the call was allowed to write a part
//	Stale    int         // how many rows were not written, by reason
//	Missing  int
//	Refused  int
//	Failures []RowError  // these rows: of a batch all, in the order given; of a load the first 1000, in key order
type BatchError = pgbatch.BatchError

// RowError says why one row was not written. It unwraps to Err. Its fields are
//
//	Index int    // the row's place in the batch; -1 in a load
//	Key   Key    // the values of the key columns
//	Err   error  // a *StaleError with the row's token, or matches ErrNotFound or ErrRefused; outside of a
//	             // BatchError it is PostgreSQL's own error about a value or a constraint
type RowError = pgbatch.RowError

// UpdateBatch writes columns of many rows in one guarded transaction: all of the rows, or none. All rows must belong to
// the lease's resource and set the same columns, and no key may be given twice; otherwise the error matches ErrInvalid,
// and nothing is sent. Keys that differ in Go but are equal in PostgreSQL are ErrInvalid as well, and nothing is
// written. With no rows, UpdateBatch only checks the lease.
//
// If a row cannot be written, no row is written, and a *BatchError lists every such row with the reason: a *StaleError
// with the row's token, ErrNotFound or ErrRefused. If rows ahead of their fence are the only obstacle, UpdateBatch
// heals, as Table.Update does. With [BatchOptions.Partial] the rows that can be written are written, nothing heals, and
// the *BatchError, with Written above 0, lists the others.
//
// Batches of one resource do not deadlock with each other. If several run at the same time, each locks its rows in the
// order of their keys. A batch that has its resource to itself locks its rows in any order. It can deadlock with a
// transaction of another kind that writes the same rows at the same time. PostgreSQL then ends one of the two, and the
// batch is tried again. Rows beyond 10,000, or 16 MB, are sent in further statements of the same transaction. A worker
// that is stopped while it sends them may delay the next claim; [Table.Load] sends its rows before it guards.
//
// PostgreSQL's own error about a value or a constraint (SQLSTATE 22 and 23) names the table and, without Partial, the
// row: the error wraps a *RowError with the row's index and key. PostgreSQL does not tell which row it is, so the batch
// is written again in halves until the row is known, and rolled back.
//
// Other errors are ErrLost, without a round trip; *StaleError if the lease has been overtaken; ErrUnavailable;
// ErrTokenRegressed; and ErrOutcomeUnknown. After 40001 or 40P01 the whole transaction is tried again, a bounded number
// of times. ctx bounds the call, and so does the lease.
func (t *Table[T]) UpdateBatch(ctx context.Context, l *Lease, rows []Change, opts *BatchOptions) error {
	if len(rows) > 0 && len(rows[0].Set) == 0 {
		return invalidf("an update of %s without columns", t.table)
	}
	return t.writeBatch(ctx, l, rows, opts, (*pgbatch.Batch).Update)
}

// UpsertBatch is UpdateBatch, except that it inserts a row that does not exist, with defaults in the columns that are
// not named. It returns how many rows were inserted; the other written rows were updated. With [BatchOptions.Partial]
// the number is also valid if the error is a *BatchError. With any other error it is 0.
//
// It compares the stored token, never the proposed one. A worker that has been overtaken inserts nothing, so a deleted
// row does not come back.
func (t *Table[T]) UpsertBatch(
	ctx context.Context, l *Lease, rows []Change, opts *BatchOptions,
) (inserted int, err error) {
	err = t.writeBatch(ctx, l, rows, opts, upserting(&inserted))
	return kept(inserted, opts, err), err
}

// upserting returns the upsert of a batch, which stores in inserted how many rows it inserted.
func upserting(inserted *int) batchFunc {
	return func(b *pgbatch.Batch, ctx context.Context, tx pgx.Tx, c Claim, opts *BatchOptions) (err error) {
		*inserted, err = b.Upsert(ctx, tx, c, opts)
		return err
	}
}

// kept returns how many of the inserted rows of a batch remain after its error.
func kept(inserted int, opts *BatchOptions, err error) int {
	var report *BatchError
	if err == nil || opts != nil && opts.Partial && errors.As(err, &report) {
		return inserted
	}
	return 0
}

type batchFunc func(b *pgbatch.Batch, ctx context.Context, tx pgx.Tx, c Claim, opts *BatchOptions) error

// writeBatch runs a batch in a transaction of its own. With Partial, rows that cannot be written do not fail the
// transaction: the others are committed.
func (t *Table[T]) writeBatch(ctx context.Context, l *Lease, rows []Change, opts *BatchOptions, write batchFunc) error {
	if err := outsideTx(ctx); err != nil {
		return err
	}
	batch, err := t.batch(l, rows)
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil || len(rows) == 0 {
		return err
	}
	var partial *BatchError
	err = t.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		partial = nil
		e, err := entered(tx, l)
		if err != nil {
			return err
		}
		err = write(batch, ctx, tx, e.claim, opts)
		if opts != nil && opts.Partial && errors.As(err, &partial) {
			return nil
		}
		return e.batchError(err, opts)
	}, l)
	if err == nil && partial != nil {
		return t.store.outcome(ctx, subject{leases: []*Lease{l}}, partial)
	}
	return err
}

// batch checks rows that will be written together under a lease.
func (t *Table[T]) batch(l *Lease, rows []Change) (*pgbatch.Batch, error) {
	rows, err := t.ownAll(l, rows)
	if err != nil {
		return nil, err
	}
	return t.batches.Batch(rows)
}

// ownAll refuses a batch with a row of another resource. It returns the keys in the form in which they are sent.
func (t *Table[T]) ownAll(l *Lease, rows []Change) ([]Change, error) {
	if l == nil || l.store != t.store {
		return nil, invalidf("the lease is nil or of another store")
	}
	rows = slices.Clone(rows)
	var room []byte
	for i := range rows {
		key, err := t.own(l, &room, rows[i].Key)
		if err != nil {
			return nil, err
		}
		rows[i].Key = key
	}
	return rows, nil
}

// own refuses a key whose resource is not the lease's. It returns the key in the form in which it is sent.
func (t *Table[T]) own(l *Lease, room *[]byte, key Key) (Key, error) {
	text, key, err := t.resource((*room)[:0], key)
	if err != nil {
		return nil, err
	}
	*room = text
	if string(text) != l.resource {
		return nil, t.ofAnother(l, key, string(text))
	}
	return key, nil
}

// onlyAhead reports whether rows ahead of their fence are the only obstacle.
func onlyAhead(report *BatchError) bool { return report.Missing == 0 && report.Refused == 0 }

func highestToken(report *BatchError) (highest Token) {
	for i := range report.Failures {
		var stale *StaleError
		if errors.As(report.Failures[i].Err, &stale) {
			highest = max(highest, stale.Current)
		}
	}
	return highest
}
