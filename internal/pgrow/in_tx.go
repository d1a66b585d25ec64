package pgrow

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// The functions of this file write a row inside a transaction that the claim has entered. The transaction is guarded
// already, so the statement carries no guard. A write that is applied costs one round trip; if no row changed, a second
// statement asks why.
//
// ErrNotFound, ErrExists, an ErrRefused without a server error, and a *StaleError of a row leave the transaction as it
// was. After an error of the server, including *StampError and SQLSTATE 42501 (ErrRefused), PostgreSQL accepts only a
// rollback, to a savepoint or of the whole transaction.

// UpdateInTx is [Writer.Update] inside a transaction that the claim has entered.
func UpdateInTx(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, set pgtable.Set,
) error {
	if err := pgtable.CheckWrite(t, key, set); err != nil {
		return err
	}
	return inTx(ctx, tx, under(t, c, key, present), updateStatement(t, key, set, int64(c.Token), withinClaim, ""))
}

// InsertInTx is [InsertClaimed] inside a transaction that the claim has entered.
func InsertInTx(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, set pgtable.Set,
) error {
	if err := checkNew(t, key, set); err != nil {
		return err
	}
	return inTx(ctx, tx, under(t, c, key, absent), insertStatement(t, key, set, int64(c.Token)))
}

// UpsertInTx is [UpsertClaimed] inside a transaction that the claim has entered.
func UpsertInTx(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, set pgtable.Set,
) (inserted bool, err error) {
	if err := checkNew(t, key, set); err != nil {
		return false, err
	}
	stmt := upsertStatement(t, key, set, int64(c.Token), withinClaim, false)
	err = tries(ctx, tx, under(t, c, key, either), func() (changed int64, err error) {
		var b pgx.Batch
		count := upserted(&inserted)(&b, stmt)
		err = tx.SendBatch(ctx, &b).Close()
		return *count, err
	})
	return inserted && err == nil, err
}

// DeleteInTx is [Writer.Delete] inside a transaction that the claim has entered.
func DeleteInTx(ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key) error {
	if err := pgtable.CheckWrite(t, key, nil); err != nil {
		return err
	}
	stmt := pgsql.Statement{SQL: deleteText(t), Args: append([]any{int64(c.Token)}, key...)}
	return inTx(ctx, tx, under(t, c, key, present), stmt)
}

// StampInTx is [StampRow] inside a transaction that the claim has entered. After an error of read the stamp remains in
// the transaction.
func StampInTx(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, t pgtable.Table, key pgtable.Key, columns []string,
	read func(pgx.Rows) error,
) error {
	if err := errors.Join(pgtable.CheckWrite(t, key, nil), pgtable.CheckNames(columns)); err != nil {
		return err
	}
	stmt := stampStatement(t, c, key, columns)
	return tries(ctx, tx, under(t, c, key, present), func() (changed int64, err error) {
		rows, err := tx.Query(ctx, stmt.SQL, stmt.Args...)
		if err != nil {
			return 0, err
		}
		err = read(rows)
		rows.Close()
		return rows.CommandTag().RowsAffected(), errors.Join(err, rows.Err())
	})
}

// inTx runs a statement that writes a row.
func inTx(ctx context.Context, tx pgx.Tx, w write, stmt pgsql.Statement) error {
	return tries(ctx, tx, w, func() (changed int64, err error) {
		tag, err := tx.Exec(ctx, stmt.SQL, stmt.Args...)
		return tag.RowsAffected(), err
	})
}

// tries sends a write, and once more if it changed nothing but now would. It finds out why it changed nothing.
func tries(ctx context.Context, tx pgx.Tx, w write, send func() (changed int64, err error)) error {
	if err := pgsession.CheckReady(tx.Conn()); err != nil {
		return err
	}
	for range 2 {
		changed, err := send()
		if err != nil {
			return refusal(w.table, OfTable(w.table, w.token, pgerr.Interpret(ctx, "write", err, false)))
		}
		if changed > 0 {
			return nil
		}
		if err := w.explain(ctx, tx); err != nil {
			return err
		}
	}
	return Refused(w.table)
}
