package mode

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// none reads, and writes the value that it has computed.
type none struct{ *servers }

func (m *none) Run(ctx context.Context, op *work.Operation) error {
	seen, err := m.readAndPause(ctx, op)
	if err != nil {
		return err
	}
	return m.writeOnce(ctx, op, seen)
}

// forUpdate locks the rows as it reads them.
type forUpdate struct{ *servers }

func (m *forUpdate) Run(ctx context.Context, op *work.Operation) error {
	return m.transaction(ctx, func(tx pgx.Tx) error { return readAndWrite(ctx, tx, op, work.RowLock) })
}

// optimistic writes only rows that still have the version that it read.
type optimistic struct{ *servers }

func (m *optimistic) Run(ctx context.Context, op *work.Operation) error {
	seen, err := m.readAndPause(ctx, op)
	if err != nil {
		return err
	}
	return m.transaction(ctx, func(tx pgx.Tx) error {
		return once(ctx, tx, op, func() error {
			all, err := work.WriteUnchanged(ctx, tx, op, seen)
			if err == nil && !all {
				err = ErrConflict
			}
			return err
		})
	})
}

// unique inserts, and relies on the constraint.
type unique struct{ *servers }

func (m *unique) Run(ctx context.Context, op *work.Operation) error {
	if err := op.Pause(ctx); err != nil {
		return err
	}
	return m.transaction(ctx, func(tx pgx.Tx) error { return work.InsertUnique(ctx, tx, op) })
}
