package fencepost

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// TableSpec declares a table whose rows are shared.
type TableSpec struct {
	// Schema and Name are the table's, as they stand: case counts, and a dot is a dot.
	Schema, Name string
	// Key are the columns of the primary key or of another total unique constraint.
	Key []string
	// TokenColumn is the column that remembers a row's token. Default "last_fencing_token".
	TokenColumn string
	// Resource returns the resource that the row with the given key belongs to: one per row, one
	// per group of rows, or one for all. A row belongs to exactly one resource, so the function
	// returns the same text for the same key always, and every program that writes the table
	// agrees on it. Required.
	Resource func(key Key) string
}

// Table reads and writes the rows of one table under leases. T is a struct whose exported fields
// are columns, matched as pgx.RowToStructByName does: by `db` tag, or by name without regard to
// case and underscores. It is safe for concurrent use.
type Table[T any] struct {
	store    *Store
	table    fence.Table
	resource func(key Key) string
	columns  []string // of T, in the order they are read
	read     string   // SELECT of one row
}

// NewTable declares a table to a store. It asks the catalog once whether the table can be fenced: the
// token column must be bigint NOT NULL, the key NOT NULL and unique over the whole table, and each
// field of T a column; otherwise the error matches ErrTable and says what is wrong. Other errors:
// ErrInvalid, ErrUnavailable. ctx bounds the call.
func NewTable[T any](ctx context.Context, s *Store, spec TableSpec) (*Table[T], error) {
	if s == nil || spec.Resource == nil {
		return nil, invalidf("a table needs a store and a resource rule")
	}
	table := fence.Table{Schema: spec.Schema, Name: spec.Name, Key: spec.Key, Token: spec.TokenColumn}
	known, err := fence.Inspect(ctx, s.pool, table)
	if err != nil {
		return nil, err
	}
	columns, err := columnsOf[T](table.String(), known)
	if err != nil {
		return nil, err
	}
	return &Table[T]{store: s, table: table, resource: spec.Resource, columns: columns, read: table.SelectSQL(columns)}, nil
}

// check refuses what cannot be before any traffic, and a lease that is over.
func (t *Table[T]) check(l *Lease, key Key) error {
	if l == nil || l.store != t.store {
		return invalidf("the lease is nil or of another store")
	}
	if len(key) != len(t.table.Key) {
		return invalidf("a key of %s has %d values, not %d", t.table, len(t.table.Key), len(key))
	}
	if r := t.resource(key); r != l.resource {
		return invalidf("row %v of %s belongs to resource %q, and the lease is for %q", key, t.table, r, l.resource)
	}
	return l.Err()
}

// Get reads a row. Under a lease that is still held at the end, what it returns is the newest there is of
// what guarded writers wrote: the claim has shut older tokens out, and a later Update under the
// same lease is accepted only if nobody's guarded write came in between.
//
// Errors: ErrInvalid (a lease of another resource, a wrong number of key values); ErrLost without a round
// trip; ErrNotFound; ErrUnavailable. ctx bounds the call, and so does the lease.
func (t *Table[T]) Get(ctx context.Context, l *Lease, key Key) (row T, err error) {
	if err := t.check(l, key); err != nil {
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
// Errors are those of Update.
func (t *Table[T]) Claim(ctx context.Context, l *Lease, key Key) (row T, err error) {
	err = t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim) error {
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

// Update writes columns of a row, guard and write in one transaction and one round trip. The
// same lease may write the same row any number of times. Key columns cannot be written: the row would move
// to another resource.
//
// A row that is ahead of its own fence (after an import, a restore, or writes with bare tokens) is not
// stale for a current holder: fence and lease are lifted to its token, and the write tried once more;
// ErrTokenRegressed where that does not help.
//
// Errors: ErrInvalid before anything is sent; ErrLost without a round trip; *StaleError; ErrNotFound;
// ErrRefused; ErrUnavailable; ErrOutcomeUnknown where the connection ended in between. 40001 and
// 40P01 are tried again, a bounded number of times. ctx bounds the call, and so does the lease.
func (t *Table[T]) Update(ctx context.Context, l *Lease, key Key, set Set) error {
	for _, column := range t.table.Key {
		if _, written := set[column]; written {
			return invalidf("column %q is part of the key of %s", column, t.table)
		}
	}
	if len(set) == 0 {
		return invalidf("an update of %s without columns", t.table)
	}
	return t.write(ctx, l, key, func(ctx context.Context, conn *pgx.Conn, c Claim) error {
		return fence.UpdateClaimed(ctx, conn, c, t.table, key, set)
	})
}

type writeFunc func(ctx context.Context, conn *pgx.Conn, c Claim) error

// write runs one guarded write, again where that is safe, and once more after healing.
func (t *Table[T]) write(ctx context.Context, l *Lease, key Key, run writeFunc) error {
	if err := t.check(l, key); err != nil {
		return err
	}
	healed := false
	return t.store.retry(ctx, []*Lease{l}, func() error {
		for {
			c := l.Claim()
			err := t.on(ctx, l, func(ctx context.Context, conn *pgx.Conn) error { return run(ctx, conn, c) })
			var stale *StaleError
			switch {
			case !errors.As(err, &stale):
				return err
			case !stale.Row && t.store.settleLift(ctx, l, c), stale.Row && c != l.Claim():
				continue // the lease has been lifted meanwhile
			case !stale.Row:
				return err
			case healed:
				return fmt.Errorf("%w: %w", ErrTokenRegressed, err)
			}
			healed = true
			if err := t.store.heal(ctx, l, c, stale.Current); err != nil {
				return err
			}
		}
	})
}

// on runs a call on a connection of the pool, within the lease. The deadline is looked at once there
// is a connection to send on.
func (t *Table[T]) on(ctx context.Context, l *Lease, run func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	leases := []*Lease{l}
	conn, err := t.store.pool.Acquire(ctx)
	if err != nil {
		return lostOr(leases, fmt.Errorf("%w: %w", ErrUnavailable, err))
	}
	defer conn.Release()
	if err := l.Err(); err != nil {
		return err
	}
	if err := run(ctx, conn.Conn()); err != nil {
		return lostOr(leases, err)
	}
	return nil
}
