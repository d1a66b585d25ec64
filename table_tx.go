package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
)

// TableTx reads and writes the rows of a [Table] inside a guarded transaction. The same transaction may write anything
// else as well: an outbox, other tables, any SQL. [Table.In] and [AdvisoryTable.In] return a TableTx, at no cost. Like
// its transaction, it is for one goroutine at a time.
//
// Each row must belong to the resource of one of the leases that guard the transaction. The methods stamp and compare
// rows as those of Table do, and return the same errors. What they write is committed or rolled back with the
// transaction.
//
// # Rows ahead of their fence
//
// A row that is ahead of its own fence (see [Table.Update]) is a *StaleError with Row set. The function returns it,
// wrapped or not: the transaction is rolled back, the lease and its fence are lifted to the row, and the function is
// called again, as after a deadlock. That happens a bounded number of times; after that the error is ErrTokenRegressed.
// In the savepoint of a Join nothing is lifted: Join returns the error, and the enclosing function must return it too.
//
// # Errors
//
// After these errors the transaction is as it was before the call, and the function may go on:
//   - ErrNotFound, ErrExists, and a *StaleError of a row.
//   - ErrRefused, if a trigger or a policy let no row change.
//   - A *BatchError of a batch with [BatchOptions.Partial].
//   - ErrInvalid and ErrLost: nothing was sent. ErrLost says that one of the leases is over. ErrInvalid says that tx is
//     not from Tx, Do, Once or Join of the table's store, that its function has returned or its savepoint has ended, or
//     that none of the leases is for the row's resource. The methods also return it in the cases in which those of
//     Table do.
//
// After any other error PostgreSQL has aborted the transaction, and nothing in it can be committed. These are a
// *BatchError of a batch without Partial, a *StampError, and every error with a SQLSTATE: a constraint, a deadlock, a
// missing privilege (which matches ErrRefused). To go on after one of these, make a savepoint with tx.Begin before the
// call, and roll it back after the error.
//
// ctx bounds each call. The context that the function was given also ends with the leases.
type TableTx[T any] struct {
	table *Table[T]
	tx    pgx.Tx
}

// In returns the table inside a transaction: the tx that a [TxFunc] was given, or a savepoint that its Begin made. In
// sends nothing. If tx cannot be used, the methods of the TableTx return an error.
func (t *Table[T]) In(tx pgx.Tx) TableTx[T] { return TableTx[T]{table: t, tx: tx} }

// Get reads a row, as [Table.Get] does. Under READ COMMITTED, another goroutine under the same lease may write the row
// between this and a later call. Modify keeps the row locked.
func (r TableTx[T]) Get(ctx context.Context, key Key) (row T, err error) {
	e, key, err := r.enter(key)
	if err != nil {
		return row, err
	}
	if err := pgsession.CheckReady(e.tx.Conn()); err != nil { // the function may have changed its session
		return row, err
	}
	rows, err := e.tx.Query(ctx, r.table.read, key...)
	if err == nil {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return row, fmt.Errorf("%w in %s", ErrNotFound, r.table.table)
	}
	return row, pgerr.ReadError(ctx, err)
}

// Stamp stamps the lease's token on a row and reads it, as [Table.Stamp] does. After an error of reading the row into a
// T, the stamp is still part of the transaction.
func (r TableTx[T]) Stamp(ctx context.Context, key Key) (row T, err error) {
	e, key, err := r.enter(key)
	if err != nil {
		return row, err
	}
	err = pgrow.StampInTx(ctx, e.tx, e.claim, r.table.table, key, r.table.columns, func(rows pgx.Rows) error {
		got, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
		if err == nil && len(got) == 1 {
			row = got[0]
		}
		return err
	})
	return row, e.rowError(err)
}

// Update writes columns of a row, as [Table.Update] does. It costs one round trip.
func (r TableTx[T]) Update(ctx context.Context, key Key, set Set) error {
	if err := r.table.checkUpdate(set); err != nil {
		return err
	}
	e, key, err := r.enter(key)
	if err != nil {
		return err
	}
	return e.rowError(pgrow.UpdateInTx(ctx, e.tx, e.claim, r.table.table, key, set))
}

// Insert inserts a row and stamps it, as [Table.Insert] does. It costs one round trip. ErrExists leaves the transaction
// as it was; the violation of another unique constraint (SQLSTATE 23505) aborts it.
func (r TableTx[T]) Insert(ctx context.Context, key Key, set Set) error {
	if err := r.table.checkNew(set); err != nil {
		return err
	}
	e, key, err := r.enter(key)
	if err != nil {
		return err
	}
	return e.rowError(pgrow.InsertInTx(ctx, e.tx, e.claim, r.table.table, key, set))
}

// Upsert inserts a row or, if its key is taken, writes the columns of set. It returns which of the two it did, as
// [Table.Upsert] does. It costs one round trip.
func (r TableTx[T]) Upsert(ctx context.Context, key Key, set Set) (inserted bool, err error) {
	if err := r.table.checkNew(set); err != nil {
		return false, err
	}
	e, key, err := r.enter(key)
	if err != nil {
		return false, err
	}
	inserted, err = pgrow.UpsertInTx(ctx, e.tx, e.claim, r.table.table, key, set)
	return inserted, e.rowError(err)
}

// Delete deletes a row, as [Table.Delete] does. It costs one round trip.
func (r TableTx[T]) Delete(ctx context.Context, key Key) error {
	e, key, err := r.enter(key)
	if err != nil {
		return err
	}
	return e.rowError(pgrow.DeleteInTx(ctx, e.tx, e.claim, r.table.table, key))
}

// Modify reads a row, lets fn change it in Go, and writes the columns that fn has changed, as [Table.Modify] does. The
// row stays locked until the transaction ends. It costs two round trips, or one if fn changes nothing. An error of fn
// is returned as it is and leaves the transaction as it was. fn is called at most once.
func (r TableTx[T]) Modify(ctx context.Context, key Key, fn func(row *T) error) error {
	if fn == nil {
		return invalidf("a modification without a function")
	}
	e, key, err := r.enter(key)
	if err != nil {
		return err
	}
	return r.table.modify(ctx, e, key, fn)
}

// UpdateBatch writes columns of many rows of one resource, as [Table.UpdateBatch] does: all of them, or none. A
// *BatchError aborts the transaction, unless [BatchOptions.Partial] is set. With no rows, UpdateBatch only checks the
// leases.
func (r TableTx[T]) UpdateBatch(ctx context.Context, rows []Change, opts *BatchOptions) error {
	if len(rows) > 0 && len(rows[0].Set) == 0 {
		return invalidf("an update of %s without columns", r.table.table)
	}
	return r.rows(ctx, rows, opts, (*pgbatch.Batch).Update)
}

// UpsertBatch is UpdateBatch, except that it inserts rows that do not exist. It returns how many it inserted, as
// [Table.UpsertBatch] does.
func (r TableTx[T]) UpsertBatch(ctx context.Context, rows []Change, opts *BatchOptions) (inserted int, err error) {
	err = r.rows(ctx, rows, opts, upserting(&inserted))
	return kept(inserted, opts, err), err
}

func (r TableTx[T]) rows(ctx context.Context, rows []Change, opts *BatchOptions, write batchFunc) error {
	if len(rows) == 0 {
		return r.look()
	}
	e, _, err := r.enter(rows[0].Key)
	if err != nil {
		return err
	}
	batch, err := r.table.batch(e.lease, rows)
	if err != nil {
		return err
	}
	return e.batchError(write(batch, ctx, e.tx, e.claim, opts), opts)
}

// look refuses a transaction in which no row of the table could be written.
func (r TableTx[T]) look() error {
	handed, err := handedOut(r.tx)
	switch {
	case err != nil:
		return err
	case !slices.ContainsFunc(handed.leases, func(l *Lease) bool { return l.store == r.table.store }):
		return invalidf("the transaction is of another store than %s", r.table.table)
	}
	return over(handed.leases)
}

// entry is one call in a transaction, under the lease of the call's row.
type entry struct {
	tx     pgx.Tx
	handed *guardedTx
	lease  *Lease
	claim  Claim // as it was entered; it cannot be lifted before the transaction has ended
}

// enter finds the lease of a key's resource among those of the transaction, and returns the key in the form in which it
// is sent.
func (r TableTx[T]) enter(key Key) (entry, Key, error) {
	handed, err := handedOut(r.tx)
	if err != nil {
		return entry{}, nil, err
	}
	var room [64]byte
	text, key, err := r.table.resource(room[:0], key)
	if err != nil {
		return entry{}, nil, err
	}
	for i, l := range handed.leases {
		if l.store == r.table.store && l.resource == string(text) {
			return entry{tx: r.tx, handed: handed, lease: l, claim: handed.claims[i]}, key, over(handed.leases)
		}
	}
	return entry{}, nil, invalidf("row %v of %s belongs to resource %q, whose lease does not guard the transaction",
		key, r.table.table, text)
}

// entered returns the entry of a call whose lease is known.
func entered(tx pgx.Tx, l *Lease) (entry, error) {
	handed, err := handedOut(tx)
	if err != nil {
		return entry{}, err
	}
	i := slices.Index(handed.leases, l)
	if i < 0 {
		return entry{}, invalidf("the lease does not guard the transaction")
	}
	return entry{tx: tx, handed: handed, lease: l, claim: handed.claims[i]}, nil
}

// rowError marks the error of a row that is ahead of its fence.
func (e entry) rowError(err error) error {
	var stale *StaleError
	if errors.As(err, &stale) && stale.Row {
		return e.ahead(err, stale.Current)
	}
	return err
}

// batchError is rowError for a batch if rows ahead of their fence were the only obstacle.
func (e entry) batchError(err error, opts *BatchOptions) error {
	var report *BatchError
	if !errors.As(err, &report) || opts != nil && opts.Partial || !onlyAhead(report) {
		return err
	}
	return e.ahead(err, highestToken(report))
}

func (e entry) ahead(err error, row Token) error {
	return &aheadError{error: err, lease: e.lease, claim: e.claim, row: row, in: e.handed.outermost()}
}
