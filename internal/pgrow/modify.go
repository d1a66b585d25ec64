package pgrow

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// ModifyRow reads one row under a claim, locks it against every other writer until tx ends, and writes the result of
// change. read is called with the rows that carry the requested columns: one row, or none. change is called if there
// was one, and returns the columns to write; none leaves the row as it is, including its token. If change returns an
// error, nothing is written, and ModifyRow returns the error unchanged.
//
// The row's lock, held from the read on, keeps goroutines that share one claim from overwriting each other. The guard,
// which travels with the read, keeps out all others. Read and write cost one round trip each.
//
// Errors are those of [Writer.Update]; a *StaleError comes before change is called. After any error the caller must
// roll back the transaction.
func ModifyRow(ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, columns []string,
	read func(pgx.Rows) error, change func() (pgtable.Set, error),
) error {
	err := errors.Join(
		c.Check(),
		pgtable.CheckWrite(t, key, nil),
		pgtable.CheckNames(columns),
		pgsession.CheckReady(tx.Conn()),
	)
	if err != nil {
		return err
	}
	if err := lockRow(ctx, tx, c, t, key, columns, read); err != nil {
		return err
	}
	set, err := change()
	if err != nil || len(set) == 0 {
		return err
	}
	if err := pgtable.CheckWrite(t, key, set); err != nil {
		return err
	}
	stmt := updateStatement(t, key, set, int64(c.Token), withinClaim, "")
	tag, err := tx.Exec(ctx, stmt.SQL, stmt.Args...)
	switch {
	case err != nil:
		return refusal(t, OfTable(t, c.Token, pgerr.Interpret(ctx, "write", err, false)))
	case tag.RowsAffected() == 0:
		return Refused(t) // the row is locked: no other writer can be the cause
	}
	return nil
}

// lockRow sends the guard and SELECT … FOR UPDATE together, and finds out why if there is no row.
func lockRow(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key,
	columns []string, read func(pgx.Rows) error,
) error {
	w := under(t, c, key, present)
	stmt := lockStatement(t, key, columns, int64(c.Token))
	for range 2 {
		var b pgx.Batch
		guardStood, found := queueGuard(&b, c), false
		b.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
			err := read(rows)
			rows.Close()
			found = rows.CommandTag().RowsAffected() > 0
			return errors.Join(err, rows.Err())
		})
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return refusalOf(t, pgerr.Interpret(ctx, "read", err, false), *guardStood)
		}
		if found {
			return nil
		}
		if err := w.explain(ctx, tx); err != nil {
			return err
		}
	}
	return Refused(t) // visible, its token high enough, but it cannot be locked
}
