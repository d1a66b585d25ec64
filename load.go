package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// Load copies rows into a temporary table and merges them into this one under the lease, in the order of their keys
// and in one transaction: all of the rows, or none. It returns how many were written. Rows that are not there
// are inserted, with defaults in the columns that are not named. columns are those of a row of the source, in
// its order, all key columns among them and not the token column. A table under row-level security can be loaded:
// what is copied into is not that table.
//
// A source is read once, and outside the guard: a slow one keeps no other worker's claim waiting, and a lease that is
// overtaken meanwhile writes nothing. A row of another resource than the lease's is ErrInvalid, and ends the load.
// So is a key that stands twice. Where the source panics, Load does. ctx and the lease are looked at before each row;
// a source that waits, for a channel or a network, has to watch ctx itself: while it does not return from Next or Values,
// Load does not either.
//
// Where rows carry a higher token, or the database lets them not change, nothing is written, and a *ManyError
// counts and lists them. Since the source cannot be read again, nothing heals: where rows are ahead of their
// fence, adopt the table first. With [ManyOptions.Partial] the rows that can be written are, and the *ManyError
// tells of the others.
//
// The user needs TEMPORARY on the database, and SELECT on the columns; without it the error is ErrUnavailable and
// says so. Errors of the source are returned as they are. Errors besides: ErrInvalid; ErrLost; *StaleError where
// the lease has been overtaken; ErrUnavailable; ErrOutcomeUnknown. 40001 and 40P01 in the merge are tried again,
// a bounded number of times. ctx bounds the call, and so does the lease.
func (t *Table[T]) Load(ctx context.Context, l *Lease, columns []string, source pgx.CopyFromSource, opts *ManyOptions) (int64, error) {
	if err := outsideTx(ctx); err != nil {
		return 0, err
	}
	if l == nil || l.store != t.store {
		return 0, invalidf("the lease is nil or of another store")
	}
	if source == nil {
		return 0, invalidf("a load without a source")
	}
	own := &ownRows[T]{CopyFromSource: source, table: t, lease: l, places: make([]int, len(t.table.Key)), key: make(Key, len(t.table.Key))}
	for i, name := range t.table.Key {
		if own.places[i] = slices.Index(columns, name); own.places[i] < 0 {
			return 0, invalidf("key column %q is not among the columns of the load", name)
		}
	}
	ctx, stop := l.bound(ctx)
	defer stop()
	loading := &load{store: t.store, lease: l, opts: opts}
	lost, err := loading.run(ctx, func(ctx context.Context, tx pgx.Tx) (*fence.Staged, error) {
		return t.bulk.Stage(ctx, tx, columns, own)
	})
	if lost != nil {
		err = t.store.settle(ctx, []*Lease{l}, *lost, err)
	}
	switch {
	case err != nil:
		return 0, t.store.outcome(err)
	case loading.report != nil:
		return int64(loading.report.Written), t.store.outcome(loading.report)
	}
	return loading.rows, nil
}

// load is one run of a load.
type load struct {
	store  *Store
	lease  *Lease
	opts   *ManyOptions
	rows   int64
	report *ManyError // in part: no reason not to commit
}

// run is [Store.run], except that the guard comes after what may take long. It returns the mark of a transaction
// whose outcome only PostgreSQL knows.
func (r *load) run(ctx context.Context, stage func(context.Context, pgx.Tx) (*fence.Staged, error)) (*fence.Mark, error) {
	leases := []*Lease{r.lease}
	if err := r.lease.Err(); err != nil {
		return nil, err
	}
	conn, err := r.store.pool.Acquire(ctx)
	if err != nil {
		return nil, lostOr(leases, fmt.Errorf("%w: begin: %w", ErrUnavailable, err))
	}
	defer conn.Release()
	opts, err := r.store.txOptions(nil)
	if err != nil {
		return nil, err
	}
	tx, mark, err := r.store.beginMarked(ctx, conn.Conn(), func(ctx context.Context, conn *pgx.Conn) (pgx.Tx, fence.Mark, error) {
		return r.store.begin(ctx, conn, opts, nil)
	})
	if err != nil {
		return nil, lostOr(leases, err)
	}
	defer rollback(ctx, tx) // without effect once committed
	staged, err := stage(ctx, tx)
	if err == nil {
		err = r.merge(ctx, staged)
	}
	if err == nil {
		err = r.lease.Err()
	}
	if err != nil {
		return nil, lostOr(leases, idleIsLost(leases, err))
	}
	err = fence.Commit(ctx, tx)
	if errors.Is(err, ErrOutcomeUnknown) {
		return &mark, err
	}
	return nil, idleIsLost(leases, err)
}

// merge writes under the claim that the lease has by now.
func (r *load) merge(ctx context.Context, staged *fence.Staged) error {
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

// ownRows refuses rows of another resource. Keys come back as they are to be sent.
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
			return values, nil // too short, which the copy says
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
