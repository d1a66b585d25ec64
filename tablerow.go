package fencepost

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// Get reads a row. Under a lease that is still held at the end, what it returns is the newest there is of
// what guarded writers wrote: the claim has shut older tokens out, and a later Update under the
// same lease is accepted only if nobody's guarded write came in between.
//
// Errors: ErrInvalid (a lease of another resource, a wrong number of key values); ErrLost without a round
// trip; ErrNotFound; ErrUnavailable. ctx bounds the call, and so does the lease.
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
		return fence.ReadError(ctx, err)
	})
	return row, err
}

// Claim stamps the lease's token on a row and reads it. From then on the row itself refuses older tokens,
// also from code that compares only the row's column and asks no fence.
//
// Errors are those of Update, and those of reading the row into a T (a NULL for which T has no room, for one). By
// the time of these the stamp has been committed.
func (t *Table[T]) Claim(ctx context.Context, l *Lease, key Key) (row T, err error) {
	err = t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim, key Key) error {
		return fence.ClaimRow(ctx, conn, c, t.table, key, t.columns, func(rows pgx.Rows) error {
			got, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
			if err == nil && len(got) == 1 {
				row = got[0]
			}
			return err
		})
	})
	return row, err
}

// Update writes columns of a row, guard and write in one statement and one round trip. The
// same lease may write the same row any number of times. Key columns cannot be written: the row would move
// to another resource. Nor can columns that PostgreSQL computes.
//
// A row that is ahead of its own fence (after an import, a restore, or writes with bare tokens) is not
// stale for a current holder: fence and lease are lifted to its token, and the write tried once more;
// ErrTokenRegressed where that does not help.
//
// Errors: ErrInvalid before anything is sent; ErrLost without a round trip; *StaleError; ErrNotFound;
// ErrRefused; ErrUnavailable; ErrOutcomeUnknown where the connection ended in between. 40001 and
// 40P01 are tried again, a bounded number of times. ctx bounds the call, and so does the lease.
func (t *Table[T]) Update(ctx context.Context, l *Lease, key Key, set Set) error {
	if len(set) == 0 {
		return invalidf("an update of %s without columns", t.table)
	}
	if err := t.checkSet(set); err != nil {
		return err
	}
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim, key Key) error {
		return fence.UpdateClaimed(ctx, conn, c, t.table, key, set)
	})
}

// Insert inserts a row and stamps it, guard and write in one transaction and one round trip. Columns that are neither
// in the key nor in set take their defaults, which is why a row is not given as a T: its zero values would
// stand in their place.
//
// ErrExists: the key is taken, whatever token the row there carries. The violation of another unique
// constraint is PostgreSQL's own error (SQLSTATE 23505). ErrRefused: a trigger or a policy let no row in. A
// key column that is GENERATED ALWAYS AS IDENTITY cannot be given, and is ErrInvalid. Other errors are those of
// Update, without ErrNotFound.
func (t *Table[T]) Insert(ctx context.Context, l *Lease, key Key, set Set) error {
	if err := t.checkNew(set); err != nil {
		return err
	}
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim, key Key) error {
		return fence.InsertClaimed(ctx, conn, c, t.table, key, set)
	})
}

// Upsert inserts a row or, where its key is taken, writes the columns of set, guard and write in one transaction and
// one round trip. It compares the token that the row there carries, never the one it proposes. Where
// the row has been deleted the guard alone refuses a holder that has been overtaken: the fence outlives the row.
//
// A row that it inserts takes the defaults of columns that set does not name. Errors are those of Update, without ErrNotFound, and
// ErrInvalid as for Insert. A row ahead of its fence heals as under Update.
func (t *Table[T]) Upsert(ctx context.Context, l *Lease, key Key, set Set) error {
	if err := t.checkNew(set); err != nil {
		return err
	}
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim, key Key) error {
		return fence.UpsertClaimed(ctx, conn, c, t.table, key, set)
	})
}

// Delete deletes a row, guard and write in one statement and one round trip. The fence stays: a holder that has
// been overtaken cannot bring the row back.
//
// Errors are those of Update; ErrNotFound where there was no row. A row ahead of its fence heals as under Update.
func (t *Table[T]) Delete(ctx context.Context, l *Lease, key Key) error {
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim, key Key) error {
		return fence.DeleteClaimed(ctx, conn, c, t.table, key)
	})
}

// checkSet refuses columns that no statement of ours may write.
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
