package mode

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/fence"
)

// rollbackPatience bounds a rollback, which does not end with the caller's context: otherwise the connection would be
// closed.
const rollbackPatience = time.Second

// transaction runs fn in a transaction without a guard, as hand-written code does. If the reply to COMMIT does not
// arrive, the error is fencepost.ErrOutcomeUnknown.
func (s *servers) transaction(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
		defer cancel()
		_ = tx.Rollback(detached) // without effect once committed
	}()
	if err := fn(tx); err != nil {
		return err
	}
	return fence.CommitError(ctx, tx.Commit(ctx))
}

// once runs fn unless the operation carries a key that has been used. If key and work are in one transaction, nothing
// more is needed.
func once(ctx context.Context, tx pgx.Tx, op *work.Operation, fn func() error) error {
	if op.Keyed {
		first, err := work.MarkDone(ctx, tx, op)
		if err != nil || !first {
			return err
		}
	}
	return fn()
}

// writeOnce writes in a transaction of its own, with nothing but the key before it.
func (s *servers) writeOnce(ctx context.Context, op *work.Operation, seen *work.Seen) error {
	return s.transaction(ctx, func(tx pgx.Tx) error {
		return once(ctx, tx, op, func() error { return work.Write(ctx, tx, op, seen) })
	})
}

// readAndWrite does the whole operation in one transaction that somebody else commits.
func readAndWrite(ctx context.Context, tx pgx.Tx, op *work.Operation, lock work.Lock) error {
	return once(ctx, tx, op, func() error {
		seen, err := work.Read(ctx, tx, op, lock)
		if err != nil {
			return err
		}
		if err := op.Pause(ctx); err != nil {
			return err
		}
		return work.Write(ctx, tx, op, seen)
	})
}

// readAndPause is what comes before the write where that has a transaction of its own.
func (s *servers) readAndPause(ctx context.Context, op *work.Operation) (*work.Seen, error) {
	seen, err := work.Read(ctx, s.pool, op, work.NoLock)
	if err != nil {
		return nil, err
	}
	return seen, op.Pause(ctx)
}
