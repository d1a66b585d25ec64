package fencepost

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/encoding"
)

type writeFunc func(ctx context.Context, conn *pgx.Conn, c Claim, key Key) error

// write runs one guarded write. It runs it again if that is safe, and once more after healing.
func (t *Table[T]) write(ctx context.Context, l *Lease, key Key, run writeFunc) error {
	key, err := t.check(ctx, l, key)
	if err != nil {
		return err
	}
	h := healing{store: t.store, lifts: 1}
	return t.store.retry(ctx, subject{leases: []*Lease{l}}, func() error {
		for {
			c := l.Claim()
			err := t.on(ctx, l, func(ctx context.Context, conn *pgx.Conn) error { return run(ctx, conn, c, key) })
			again, err := h.afterWrite(ctx, l, c, err)
			if !again {
				return err
			}
		}
	})
}

// on runs a call on a connection of the pool, within the lease. It checks the deadline once it has a connection.
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
	if problem := encoding.Problem(conn.Conn().PgConn()); problem != "" {
		return invalidf("%s", problem)
	}
	if err := run(ctx, conn.Conn()); err != nil {
		fence.Discard(conn.Conn(), err)
		return lostOr(leases, err)
	}
	return nil
}
