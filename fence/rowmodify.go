package fence

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// ModifyRow reads one row under a claim, keeps it from every other writer until tx ends, and writes what change
// makes of it. read is called with the rows that carry the columns asked for: one row, or none. change is called
// once there was one, and returns the columns to write: none leaves the row as it is, its token included. Where
// it returns an error, nothing is written, and the error is returned as it is.
//
// The row's lock, held from the read on, keeps goroutines that share one claim from writing over each other; the
// guard, which travels with the read, keeps out everybody else. Read and write cost one round trip each.
//
// Errors are those of [UpdateClaimed]; a *StaleError comes before change is called. After any error the
// transaction is the caller's to roll back.
func ModifyRow(ctx context.Context, tx pgx.Tx, c Claim, t Table, key Key, columns []string,
	read func(pgx.Rows) error, change func() (Set, error),
) error {
	if err := errors.Join(c.Check(), t.checkWrite(key, nil), checkNames(columns), checkFree(tx.Conn())); err != nil {
		return err
	}
	if err := lockRow(ctx, tx, c, t, key, columns, read); err != nil {
		return err
	}
	set, err := change()
	if err != nil || len(set) == 0 {
		return err
	}
	if err := t.checkWrite(key, set); err != nil {
		return err
	}
	stmt := t.update(key, set, int64(c.Token), withinClaim)
	tag, err := tx.Exec(ctx, stmt.sql, stmt.args...)
	switch {
	case err != nil:
		return refusal(t, interpret(ctx, "write", err, false))
	case tag.RowsAffected() == 0:
		return refused(t) // the row is locked: nobody else can be the cause
	}
	return nil
}

// lockRow sends guard and SELECT … FOR UPDATE together, and tells why there is no row, where there is none.
func lockRow(ctx context.Context, tx pgx.Tx, c Claim, t Table, key Key, columns []string, read func(pgx.Rows) error) error {
	w := t.under(c, key, present)
	stmt := t.lock(key, columns, int64(c.Token))
	for range 2 {
		var b pgx.Batch
		guardStood, found := queueGuard(&b, c), false
		b.Queue(stmt.sql, stmt.args...).Query(func(rows pgx.Rows) error {
			err := read(rows)
			rows.Close()
			found = rows.CommandTag().RowsAffected() > 0
			return errors.Join(err, rows.Err())
		})
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return refusalOf(t, interpret(ctx, "read", err, false), *guardStood)
		}
		if found {
			return nil
		}
		if err := w.explain(ctx, tx); err != nil {
			return err
		}
	}
	return refused(t) // visible, its token good enough, and yet not to be locked
}
