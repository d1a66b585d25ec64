package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgbatch"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// update makes an older token meet a newer one at a row, once with the newer one committed and once with it rolled
// back.
func (s *scratch) update(ctx context.Context, t *trial) error {
	a, b, err := t.two(ctx)
	if err != nil {
		return err
	}
	meet := func(end func(pgx.Tx) error) error {
		if err := s.set(ctx, a, "update", 0); err != nil {
			return err
		}
		tx, err := inTx(ctx, a)
		if err != nil {
			return err
		}
		if err := s.write(ctx, tx, 2, "newer"); err != nil {
			return err
		}
		older := t.start(ctx, func(ctx context.Context) error { return s.write(ctx, b, 1, "older") })
		if err := older.waits(s.watch, "the transaction that has changed the row"); err != nil {
			return err
		}
		if err := end(tx); err != nil {
			return err
		}
		return older.ends(ctx)
	}
	err = meet(func(tx pgx.Tx) error { return tx.Commit(ctx) })
	var stale *fence.StaleError
	switch {
	case err == nil:
		return errors.New("an older token was written over a newer one that had been committed meanwhile")
	case !errors.As(err, &stale) || stale.Current != 2:
		return fmt.Errorf("an older token was not refused as stale: %w", err)
	}
	if err := s.wantValue(ctx, a, "update", "newer"); err != nil {
		return err
	}
	if err := meet(func(tx pgx.Tx) error { return tx.Rollback(ctx) }); err != nil {
		return fmt.Errorf("after the newer token was rolled back: %w", err)
	}
	return s.wantValue(ctx, a, "update", "older")
}

func (s *scratch) write(ctx context.Context, db fence.DB, tok token.Token, value string) error {
	return fence.Update(ctx, db, s.table(), tok, fence.Key{"update"}, fence.Set{"value": value})
}

// catalog reads what NewTable reads.
func (s *scratch) catalog(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	columns, err := pgtable.Inspect(ctx, conn, pgtable.Table(s.table()))
	if err == nil && len(columns) != 3 {
		err = fmt.Errorf("the table has %d columns by the catalog, and not 3", len(columns))
	}
	return err
}

// copyIn does what a load does before its merge.
func (s *scratch) copyIn(ctx context.Context, t *trial) error {
	conn, err := t.conn(ctx)
	if err != nil {
		return err
	}
	columns, err := pgtable.Inspect(ctx, conn, pgtable.Table(s.table()))
	if err != nil {
		return err
	}
	batches, err := pgbatch.NewBatchWriter(pgtable.Table(s.table()), columns)
	if err != nil {
		return err
	}
	tx, err := inTx(ctx, conn)
	if err != nil {
		return err
	}
	rows := [][]any{{"copy-1", "first"}, {"copy-2", "second"}}
	staged, err := batches.Stage(ctx, tx, []string{"id", "value"}, pgx.CopyFromRows(rows))
	switch {
	case err != nil:
		return err
	case staged.Rows() != int64(len(rows)):
		return fmt.Errorf("%d of %d rows arrived", staged.Rows(), len(rows))
	}
	return tx.Rollback(ctx)
}
