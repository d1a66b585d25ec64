package fencepost

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
)

// Load copies rows into a temporary table and merges them into this one under the lease, in the order of their keys and
// in one transaction: all of the rows, or none. It returns how many rows were written. Rows that do not exist are
// inserted, with defaults in the columns that are not named. columns names the columns of a source row, in order. It
// must include all key columns, and not the token column. A table with row-level security can be loaded, because the
// copy goes into the temporary table.
//
// The source is read once, and before the guard. A slow source does not delay another worker's claim, and a lease that
// is overtaken in the meantime writes nothing. A row of another resource than the lease's ends the load with
// ErrInvalid, and so does a key that is given twice. If the source panics, Load panics. Load checks ctx and the lease
// before each row. A source that waits for a channel or a network must watch ctx itself, because Load cannot return
// before Next or Values does.
//
// If rows carry a higher token, or the database does not let them change, nothing is written, and a *BatchError counts
// and lists these rows. Because the source cannot be read again, nothing heals: if rows are ahead of their fence, adopt
// the table first. With [BatchOptions.Partial] the rows that can be written are written, and the *BatchError reports
// the others.
//
// The user needs TEMPORARY on the database, and SELECT on the columns. Without these privileges the error is
// ErrUnavailable and says so. Errors of the source are returned as they are. Other errors are ErrInvalid; ErrLost;
// *StaleError if the lease has been overtaken; ErrUnavailable; and ErrOutcomeUnknown. After 40001 or 40P01 the merge is
// tried again, a bounded number of times. ctx bounds the call, and so does the lease.
func (t *Table[T]) Load(
	ctx context.Context, l *Lease, columns []string, source pgx.CopyFromSource, opts *BatchOptions,
) (int64, error) {
	if err := outsideTx(ctx); err != nil {
		return 0, err
	}
	if err := t.takes(l); err != nil {
		return 0, err
	}
	if source == nil {
		return 0, invalidf("a load without a source")
	}
	own := &ownRows[T]{
		CopyFromSource: source, table: t, lease: l, places: make([]int, len(t.table.Key)), key: make(Key, len(t.table.Key)),
	}
	for i, name := range t.table.Key {
		if own.places[i] = slices.Index(columns, name); own.places[i] < 0 {
			return 0, invalidf("key column %q is not among the columns of the load", name)
		}
	}
	ctx, stop := l.bound(ctx)
	defer stop()
	o, err := t.store.txOptions(nil)
	if err != nil {
		return 0, err
	}
	loading := &load{lease: l, opts: opts}
	r := &txRun{store: t.store, leases: []*Lease{l}, opts: o}
	// The guard comes with the merge, after the part that may take long.
	r.open = r.begin
	r.fn = func(ctx context.Context, tx pgx.Tx) error {
		staged, err := t.batches.Stage(ctx, tx, columns, own)
		if err != nil {
			return err
		}
		return loading.merge(ctx, staged)
	}
	err = r.attempt(holding(ctx, l))
	about := subject{leases: r.leases}
	switch {
	case err != nil:
		return 0, t.store.outcome(ctx, about, err)
	case loading.report != nil:
		return int64(loading.report.Written), t.store.outcome(ctx, about, loading.report)
	}
	return loading.rows, nil
}

// load is one run of a load.
type load struct {
	lease  *Lease
	opts   *BatchOptions
	rows   int64
	report *BatchError // of a Partial load, which commits all the same
}

// merge writes under the lease's current claim.
func (r *load) merge(ctx context.Context, staged *pgbatch.Staged) error {
	if err := r.lease.Err(); err != nil {
		return err
	}
	r.rows = staged.Rows()
	err := staged.Merge(ctx, r.lease.Claim(), r.opts)
	if r.opts != nil && r.opts.Partial && errors.As(err, &r.report) {
		return nil
	}
	return err
}

// ownRows refuses rows of another resource. It returns keys in the form in which they are sent.
type ownRows[T any] struct {
	pgx.CopyFromSource
	table  *Table[T]
	lease  *Lease
	places []int // of the key columns
	key    Key
	values []any
	room   []byte
}

func (o *ownRows[T]) Values() ([]any, error) {
	values, err := o.CopyFromSource.Values()
	if err != nil {
		return nil, err
	}
	o.values = append(o.values[:0], values...)
	for i, place := range o.places {
		if place >= len(values) {
			return values, nil // too short; the copy reports it
		}
		o.key[i] = values[place]
	}
	key, err := o.table.own(o.lease, &o.room, o.key)
	if err != nil {
		return nil, err
	}
	for i, place := range o.places {
		o.values[place] = key[i]
	}
	return o.values, nil
}
