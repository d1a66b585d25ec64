package fencepost

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
)

type writeFunc func(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key Key) error

// write runs one guarded write. It runs it again if that is safe, and once more after healing. What only a write that
// is not accepted at once needs is made for that write alone.
func (t *Table[T]) write(ctx context.Context, l *Lease, key Key, run writeFunc) error {
	key, err := t.check(ctx, l, key)
	if err != nil {
		return err
	}
	c := l.sent()
	if err := t.writeOnce(ctx, l, c, key, run); err != nil {
		return t.writeAgain(ctx, l, key, run, refusedWrite{c.Claim, err})
	}
	return nil
}

// refusedWrite is a write that returned an error, and its claim.
type refusedWrite struct {
	claim Claim
	err   error
}

// writeAgain continues after a first write that returned an error.
func (t *Table[T]) writeAgain(ctx context.Context, l *Lease, key Key, run writeFunc, first refusedWrite) error {
	h := healing{store: t.store, lifts: 1}
	last, told := first, false
	return t.store.retry(ctx, subject{leases: []*Lease{l}}, func() error {
		for {
			if told {
				c := l.sent()
				last = refusedWrite{c.Claim, t.writeOnce(ctx, l, c, key, run)}
			}
			told = true
			again, err := h.afterWrite(ctx, l, last.claim, last.err)
			if !again {
				return err
			}
		}
	})
}

// writeOnce runs a write on a connection of the pool, within the lease.
func (t *Table[T]) writeOnce(ctx context.Context, l *Lease, c pgclaim.Sent, key Key, run writeFunc) error {
	bound := l.boundCall(ctx)
	defer l.endCall(bound)
	conn, err := t.take(bound.ctx, l)
	if err != nil {
		return err
	}
	defer conn.Release()
	return l.used(conn, run(bound.ctx, conn.Conn(), c, key))
}

// on runs a call on a connection of the pool, within the lease.
func (t *Table[T]) on(ctx context.Context, l *Lease, run func(ctx context.Context, conn *pgx.Conn) error) error {
	bound := l.boundCall(ctx)
	defer l.endCall(bound)
	conn, err := t.take(bound.ctx, l)
	if err != nil {
		return err
	}
	defer conn.Release()
	return l.used(conn, run(bound.ctx, conn.Conn()))
}

// take takes a connection from the pool. It checks the lease's deadline once it has one.
func (t *Table[T]) take(ctx context.Context, l *Lease) (*pgxpool.Conn, error) {
	conn, err := t.store.pool.Acquire(ctx)
	if err != nil {
		return nil, lostOr([]*Lease{l}, fmt.Errorf("%w: %w", ErrUnavailable, err))
	}
	if err = l.Err(); err == nil {
		if problem := encoding.Problem(conn.Conn().PgConn()); problem != "" {
			err = invalidf("%s", problem)
		}
	}
	if err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// used closes a connection that an error has shown to be useless, before it is released. It returns the call's error.
func (l *Lease) used(conn *pgxpool.Conn, err error) error {
	if err == nil {
		return nil
	}
	fence.Discard(conn.Conn(), err)
	return lostOr([]*Lease{l}, err)
}
