package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

type (
	// Change is one row of a batch: its key, and the columns to write.
	Change = fence.Change
	// ManyOptions are the settings of a batch or a load.
	ManyOptions = fence.ManyOptions
	// ManyError says which rows of a batch or a load were not written, and why each.
	ManyError = fence.ManyError
	// RowError is why one row was not written.
	RowError = fence.RowError
)

// UpdateMany writes columns of many rows in one guarded transaction: all of the rows, or none. All rows belong to
// the lease's resource and set the same columns, and no key stands twice; otherwise the error matches ErrInvalid
// and nothing has been sent. Keys that are two in Go and one in PostgreSQL are ErrInvalid as well, and nothing is
// written. A batch without rows is no more than a look at the lease.
//
// Where a row cannot be written, nothing is, and a *ManyError lists every such row and why: a *StaleError with the
// row's token, ErrNotFound or ErrRefused. Where rows ahead of their fence are all that stands in the way, it
// heals, as Table.Update does. With [ManyOptions.Partial] the rows that can be written are, nothing heals, and
// the *ManyError, with Written above 0, lists the others.
//
// Batches of one resource do not deadlock: where several run at once, each locks its rows in the order of their
// keys. A batch that has its resource to itself takes its rows as they come, so a transaction of another kind that writes
// the same rows meanwhile, in whatever order, can meet it in a deadlock: PostgreSQL ends one of the two, and the batch is
// tried again. Rows beyond 10,000, or 16 MB, are sent in further statements of the same transaction. A worker that is
// stopped while it sends them may hold up the next claim; [Table.Load] sends its rows before it guards.
//
// Errors besides: ErrLost without a round trip; *StaleError where the lease has been overtaken; ErrUnavailable;
// ErrTokenRegressed; ErrOutcomeUnknown. 40001 and 40P01 are tried again as a whole, a bounded number of times.
// ctx bounds the call, and so does the lease.
func (t *Table[T]) UpdateMany(ctx context.Context, l *Lease, rows []Change, opts *ManyOptions) error {
	if len(rows) > 0 && len(rows[0].Set) == 0 {
		return invalidf("an update of %s without columns", t.table)
	}
	return t.many(ctx, l, rows, opts, (*fence.Batch).Update)
}

// UpsertMany is UpdateMany, except that a row that is not there is inserted, with defaults in the columns that are
// not named. What is compared is the token that is stored, never the one proposed; a worker that has been
// overtaken inserts nothing, so that a row that was deleted does not come back.
func (t *Table[T]) UpsertMany(ctx context.Context, l *Lease, rows []Change, opts *ManyOptions) error {
	return t.many(ctx, l, rows, opts, (*fence.Batch).Upsert)
}

type manyFunc func(b *fence.Batch, ctx context.Context, tx pgx.Tx, c Claim, opts *ManyOptions) error

func (t *Table[T]) many(ctx context.Context, l *Lease, rows []Change, opts *ManyOptions, write manyFunc) error {
	if err := outsideTx(ctx); err != nil {
		return err
	}
	rows, err := t.ownAll(l, rows)
	if err != nil {
		return err
	}
	batch, err := t.bulk.Batch(rows)
	if err != nil {
		return err
	}
	if err := l.Err(); err != nil || len(rows) == 0 {
		return err
	}
	for healed := false; ; {
		used, report, err := t.writeMany(ctx, l, batch, opts, write)
		switch {
		case err != nil:
			return err
		case report == nil:
			return nil
		case opts != nil && opts.Partial, !onlyAhead(report):
			return t.store.outcome(report)
		case used != l.Claim():
			continue // the lease has been lifted meanwhile
		case healed:
			return t.store.outcome(fmt.Errorf("%w: %w", ErrTokenRegressed, report))
		}
		highest := highestToken(report)
		if err := t.store.heal(ctx, l, used, highest); err != nil {
			return t.store.outcome(err)
		}
		healed = l.Token() >= highest
	}
}

// writeMany runs the batch in a transaction. A report is kept apart from errors: in part it is no failure, and
// rows that are ahead are no news before it is clear that they do not heal.
func (t *Table[T]) writeMany(ctx context.Context, l *Lease, batch *fence.Batch, opts *ManyOptions, write manyFunc) (
	used Claim, report *ManyError, err error,
) {
	err = t.store.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		used, report = l.Claim(), nil
		err := write(batch, ctx, tx, used, opts)
		if errors.As(err, &report) {
			if opts != nil && opts.Partial {
				return nil
			}
			return errReported
		}
		return err
	}, l)
	if errors.Is(err, errReported) {
		err = nil
	}
	return used, report, err
}

// errReported rolls a batch back. It reaches no caller.
var errReported = errors.New("rows cannot be written")

// ownAll refuses a batch with a row of another resource. Keys come back as they are to be sent.
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

// own refuses a key of another resource than the lease's.
func (t *Table[T]) own(l *Lease, room *[]byte, key Key) (Key, error) {
	text, key, err := t.resource((*room)[:0], key)
	if err != nil {
		return nil, err
	}
	*room = text
	if string(text) != l.resource {
		return nil, invalidf("row %v of %s belongs to resource %q, and the lease is for %q", key, t.table, text, l.resource)
	}
	return key, nil
}

// onlyAhead reports whether rows ahead of their fence are all that stands in the way.
func onlyAhead(report *ManyError) bool { return report.Missing == 0 && report.Refused == 0 }

func highestToken(report *ManyError) (highest Token) {
	for i := range report.Failures {
		var stale *StaleError
		if errors.As(report.Failures[i].Err, &stale) {
			highest = max(highest, stale.Current)
		}
	}
	return highest
}
