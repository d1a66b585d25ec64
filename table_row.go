package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
)

// Get reads a row. If the lease is still held when Get returns, the row is the newest that guarded writers have
// written: the claim has locked out older tokens, and a later Update under the same lease is accepted only if no other
// holder's guarded write came in between.
//
// Errors are ErrInvalid (the lease is for another resource, or the number of key values is wrong); ErrLost, without a
// round trip; ErrNotFound; and ErrUnavailable. ctx bounds the call, and so does the lease.
func (t *Table[T]) Get(ctx context.Context, l *Lease, key Key) (row T, err error) {
	key, err = t.check(ctx, l, key)
	if err != nil {
		return row, err
	}
	err = t.on(ctx, l, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, t.read, key...)
		if err == nil {
			row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
		}
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w in %s", ErrNotFound, t.table)
		}
		return pgerr.ReadError(ctx, err)
	})
	return row, err
}

// Stamp writes the lease's token to a row and reads the row. From then on the row itself refuses older tokens, even
// from code that compares only the row's column and does not check the fence.
//
// Errors are those of Update, and those of reading the row into a T (a NULL in a field that cannot hold it, for
// example). An error of reading comes after the stamp has been committed.
func (t *Table[T]) Stamp(ctx context.Context, l *Lease, key Key) (row T, err error) {
	err = t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key Key) error {
		return pgrow.StampRow(ctx, conn, c.Claim, t.table, key, t.columns, func(rows pgx.Rows) error {
			got, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
			if err == nil && len(got) == 1 {
				row = got[0]
			}
			return err
		})
	})
	return row, err
}

// Update writes columns of a row. Guard and write take one statement and one round trip. The same lease may write the
// same row any number of times. Key columns cannot be written, because the row would move to another resource. Columns
// that PostgreSQL computes cannot be written either.
//
// A row may be ahead of its own fence after an import, a restore, or writes with bare tokens. A current holder is not
// stale then. Update lifts the fence and the lease to the row's token, and tries the write once more. If that does not
// help, the error is ErrTokenRegressed.
//
// Errors are ErrInvalid, before anything is sent; ErrLost, without a round trip; *StaleError; ErrNotFound; ErrRefused;
// ErrUnavailable; and ErrOutcomeUnknown if the connection ended before the reply. After 40001 or 40P01 the write is
// tried again, a bounded number of times. ctx bounds the call, and so does the lease.
func (t *Table[T]) Update(ctx context.Context, l *Lease, key Key, set Set) error {
	if err := t.checkUpdate(set); err != nil {
		return err
	}
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key Key) error {
		return t.writer.Update(ctx, conn, c, key, set)
	})
}

// Insert inserts a row and stamps it. Guard and write take one transaction and one round trip. Columns that are neither
// in the key nor in set take their defaults. For that reason Insert does not take a T: its zero values would replace
// the defaults.
//
// The error is ErrExists if the key is taken, whatever token that row carries. A violation of another unique constraint
// is PostgreSQL's own error (SQLSTATE 23505). The error is ErrRefused if a trigger or a policy prevented the insert,
// and ErrInvalid if a key column is GENERATED ALWAYS AS IDENTITY, because its value cannot be given. Other errors are
// those of Update, without ErrNotFound.
func (t *Table[T]) Insert(ctx context.Context, l *Lease, key Key, set Set) error {
	if err := t.checkNew(set); err != nil {
		return err
	}
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key Key) error {
		return pgrow.InsertClaimed(ctx, conn, c.Claim, t.table, key, set)
	})
}

// Upsert inserts a row or, if its key is taken, writes the columns of set. It returns which of the two it did; inserted
// is false if err is not nil. Guard and write take one transaction and one round trip. Upsert compares the token that
// the existing row carries, never the proposed one. If the row has been deleted, the guard still refuses a holder that
// has been overtaken, because the fence outlives the row.
//
// An inserted row takes the defaults in the columns that set does not name. Errors are those of Update, without
// ErrNotFound, and ErrInvalid as for Insert. A row ahead of its fence heals as in Update.
func (t *Table[T]) Upsert(ctx context.Context, l *Lease, key Key, set Set) (inserted bool, err error) {
	if err := t.checkNew(set); err != nil {
		return false, err
	}
	err = t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key Key) error {
		inserted, err = pgrow.UpsertClaimed(ctx, conn, c.Claim, t.table, key, set)
		return err
	})
	return inserted && err == nil, err
}

// Delete deletes a row. Guard and write take one statement and one round trip. The fence stays, so a holder that has
// been overtaken cannot bring the row back.
//
// Errors are those of Update; the error is ErrNotFound if there was no row. A row ahead of its fence heals as in
// Update.
func (t *Table[T]) Delete(ctx context.Context, l *Lease, key Key) error {
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key Key) error {
		return t.writer.Delete(ctx, conn, c, key)
	})
}

// checkUpdate is checkSet for an update, which needs columns.
func (t *Table[T]) checkUpdate(set Set) error {
	if len(set) == 0 {
		return invalidf("an update of %s without columns", t.table)
	}
	return t.checkSet(set)
}

// checkSet refuses columns that no statement of this package may write.
func (t *Table[T]) checkSet(set Set) error {
	for column := range set {
		switch known := t.known[column]; {
		case slices.Contains(t.table.Key, column):
			return invalidf("column %q is part of the key of %s", column, t.table)
		case known.Generated:
			return invalidf("column %q of %s is generated: PostgreSQL alone writes it", column, t.table)
		case known.IdentityAlways:
			return invalidf("column %q of %s is GENERATED ALWAYS AS IDENTITY: PostgreSQL alone writes it", column, t.table)
		}
	}
	return nil
}

// checkNew is checkSet for rows that may be inserted.
func (t *Table[T]) checkNew(set Set) error {
	for _, column := range t.table.Key {
		if t.known[column].IdentityAlways {
			return invalidf("key column %q of %s is GENERATED ALWAYS AS IDENTITY: a key cannot be given", column, t.table)
		}
	}
	return t.checkSet(set)
}
