package pgrow

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
)

// Writer writes rows of one table under claims, with guard and write in one statement and one round trip. It keeps the
// texts of its statements. It is safe for concurrent use.
type Writer struct {
	table   pgtable.Table
	deletes texts
	updates atomic.Pointer[columnTexts] // of the last update: most programs write the same columns again and again
}

// columnTexts are the texts of an update of some columns.
type columnTexts struct {
	texts

	columns []string // sorted
}

// NewWriter makes a Writer of a table.
func NewWriter(t pgtable.Table) *Writer {
	return &Writer{table: t, deletes: textsOf(deleteText(t), 1+len(t.Key), "")}
}

// Update writes one row under a claim. Unlike the function [Update] it may write the same row again under the same
// claim.
//
// Errors are those of the function Update, without ErrTokenSpent. A *StaleError comes from the fence or, with Row set,
// from a row that is ahead of its own fence. ErrRefused also matches PostgreSQL's own refusal (SQLSTATE 42501: a
// policy, or a missing privilege on the table). If this role may not use fencepost itself, the error is ErrUnavailable
// and says so. conn must not be in a transaction.
func (w *Writer) Update(
	ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key pgtable.Key, set pgtable.Set,
) error {
	t, err := w.textsFor(key, set)
	if err := errors.Join(c.Check(), err); err != nil {
		return err
	}
	args := append(make([]any, 0, 1+len(set)+len(key)+guardArgs), c.Args[1])
	for _, column := range t.columns {
		args = append(args, set[column])
	}
	return claimedAutocommit(ctx, conn, c, under(w.table, c.Claim, key, present), t.texts, append(args, key...))
}

// textsFor checks an update and returns its texts. Columns that are those of the last update have been checked.
func (w *Writer) textsFor(key pgtable.Key, set pgtable.Set) (*columnTexts, error) {
	if last := w.updates.Load(); last != nil && sets(set, last.columns) {
		return last, pgtable.CheckKey(w.table, key)
	}
	if err := pgtable.CheckWrite(w.table, key, set); err != nil {
		return nil, err
	}
	made := &columnTexts{columns: sortedColumns(set, nil)}
	var r pgsql.Buffer
	update := appendUpdate(r[:0], w.table, made.columns, withinClaim).String()
	made.texts = textsOf(update, 1+len(made.columns)+len(key), w.table.TokenColumn())
	w.updates.Store(made)
	return made, nil
}

// sets reports whether a set writes exactly these columns.
func sets(set pgtable.Set, columns []string) bool {
	if len(set) != len(columns) {
		return false
	}
	for _, column := range columns {
		if _, ok := set[column]; !ok {
			return false
		}
	}
	return true
}

// Delete deletes one row under a claim. The fence stays, and keeps refusing overtaken claims for the key.
//
// Errors are those of [Writer.Update]. conn must not be in a transaction.
func (w *Writer) Delete(ctx context.Context, conn *pgx.Conn, c pgclaim.Sent, key pgtable.Key) error {
	if err := errors.Join(c.Check(), pgtable.CheckWrite(w.table, key, nil)); err != nil {
		return err
	}
	args := append(append(make([]any, 0, 1+len(key)+guardArgs), c.Args[1]), key...)
	return claimedAutocommit(ctx, conn, c, under(w.table, c.Claim, key, present), w.deletes, args)
}
