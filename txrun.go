package fencepost

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
)

// attempt runs the transaction one time, and finds out whether it was committed where its reply was lost. By then its
// connection has been given back: the pool may have no other.
func (s *Store) attempt(ctx context.Context, open opening, fn TxFunc, leases []*Lease) error {
	lost, err := s.run(ctx, open, fn, leases)
	if lost != nil {
		return s.settle(ctx, leases, *lost, err)
	}
	return err
}

// opening opens a transaction that is marked and guarded.
type opening func(ctx context.Context, conn *pgx.Conn) (pgx.Tx, fence.Mark, error)

// run runs the transaction one time. It returns the mark of a transaction whose outcome only PostgreSQL knows.
func (s *Store) run(ctx context.Context, open opening, fn TxFunc, leases []*Lease) (lost *fence.Mark, err error) {
	if err := over(leases); err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, lostOr(leases, fmt.Errorf("%w: begin: %w", ErrUnavailable, err))
	}
	defer conn.Release()
	if err := over(leases); err != nil {
		return nil, err
	}
	tx, mark, err := open(ctx, conn.Conn())
	if err != nil {
		return nil, lostOr(leases, err)
	}
	defer rollback(ctx, tx) // without effect once committed
	if err := call(ctx, fn, tx); err != nil {
		return nil, lostOr(leases, idleIsLost(leases, connectionIsUnavailable(ctx, tx, err)))
	}
	if err := over(leases); err != nil {
		return nil, err
	}
	err = fence.CommitMarked(ctx, tx, mark)
	if errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, fence.ErrBroken) {
		return &mark, err // of a broken one the mark speaks of the wrong half
	}
	if err == nil {
		return nil, nil
	}
	return nil, lostOr(leases, idleIsLost(leases, err))
}

// call runs the function. Without an error the transaction is still there, for its nil to commit.
func call(ctx context.Context, fn TxFunc, tx pgx.Tx) error {
	handed := &guardedTx{Tx: tx}
	if err := fn(context.WithValue(ctx, insideTx{}, true), handed); err != nil {
		if ended := handed.endedInSQL(); ended != nil {
			return errors.Join(err, ended)
		}
		return err
	}
	return handed.check()
}

// connectionIsUnavailable says of a function's error that came with the end of the connection, before any COMMIT, that
// nothing was written.
func connectionIsUnavailable(ctx context.Context, tx pgx.Tx, err error) error {
	if !tx.Conn().IsClosed() || ctx.Err() != nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: the connection ended inside the transaction: %w", ErrUnavailable, err)
}

// enter begins, and begins again where a guard failed only because another goroutine was lifting a lease.
func (s *Store) enter(ctx context.Context, conn *pgx.Conn, opts TxOptions, leases []*Lease) (pgx.Tx, fence.Mark, error) {
	for {
		claims := make([]Claim, len(leases))
		for i, l := range leases {
			claims[i] = l.Claim()
		}
		tx, mark, err := s.beginMarked(ctx, conn, func(ctx context.Context, conn *pgx.Conn) (pgx.Tx, fence.Mark, error) {
			return s.begin(ctx, conn, opts, claims)
		})
		if !errors.Is(err, ErrStale) {
			return tx, mark, err
		}
		healed := false
		for i, l := range leases {
			healed = healed || s.settleLift(ctx, l, claims[i])
		}
		if !healed {
			return nil, mark, err
		}
	}
}

// beginMarked begins, and begins again with a life where the server had none. It takes a transaction without a
// mark rather than none: the mark matters only where a reply is lost.
func (s *Store) beginMarked(ctx context.Context, conn *pgx.Conn, begin opening) (pgx.Tx, fence.Mark, error) {
	tx, mark, err := begin(ctx, conn)
	if err != nil || mark.Life != "" {
		return tx, mark, err
	}
	rollback(ctx, tx)
	if err := fence.BeginLife(ctx, conn); err != nil {
		s.opts.Logger.Warn("the server's life cannot be told from the next", "error", err)
	}
	return begin(ctx, conn)
}

// begin opens the transaction, bounds how long it may be idle, marks and guards it, all in one round trip.
func (s *Store) begin(ctx context.Context, conn *pgx.Conn, opts TxOptions, claims []Claim) (pgx.Tx, fence.Mark, error) {
	var b pgx.Batch
	// The guard locks rows, so the transaction begins as one that may write, whatever the database's default is.
	b.BeginTx(pgx.TxOptions{IsoLevel: opts.Isolation, AccessMode: pgx.ReadWrite})
	boundIdle(&b, opts.MaxIdle)
	mark := fence.QueueMark(&b)
	for _, c := range claims {
		fence.QueueGuard(&b, c)
	}
	if opts.first != nil {
		opts.first(&b)
	}
	if opts.ReadOnly {
		b.Queue(`SET TRANSACTION READ ONLY`)
	}
	tx, err := sendBegin(ctx, conn, &b)
	return tx, *mark, err
}

// boundIdle bounds how long the transaction may be idle. A holder stopped while it reads a result is not idle; the
// second setting ends that one.
func boundIdle(b *pgx.Batch, maxIdle time.Duration) {
	b.Queue(`SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('tcp_user_timeout', $1, true)`,
		strconv.FormatInt(maxIdle.Milliseconds(), 10))
}

// sendBegin sends what opens a guarded transaction.
func sendBegin(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) (pgx.Tx, error) {
	results := conn.SendBatch(ctx, b)
	tx := results.Tx()
	if err := results.Close(); err != nil {
		rollback(ctx, tx)
		return nil, fence.GuardError(ctx, err)
	}
	return tx, nil
}
