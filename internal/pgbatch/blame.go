package pgbatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

const (
	rowSavepointSQL = `SAVEPOINT fencepost_row`
	undoRowSQL      = `ROLLBACK TO SAVEPOINT fencepost_row`
	releaseRowSQL   = `RELEASE SAVEPOINT fencepost_row`
)

// blame adds to an error about a value or a constraint which of the rows it is about, and returns any other as it is.
// PostgreSQL does not say which row it is, so blame writes the rows again, by halves, in two round trips for each. If
// that does not find the row, the error stays as it is too.
//
// It undoes what the batch has written, and leaves the transaction for the caller to abort.
func (w *batchWrite) blame(ctx context.Context, places []int, err error) error {
	server, ok := pgerr.ServerError(err)
	if !ok || !aboutARow(server.Code) {
		return err
	}
	if w.send(ctx, func(b *pgx.Batch) { b.Queue(undoSQL) }) != nil {
		return err
	}
	for len(places) > 1 {
		half := places[:len(places)/2]
		refused, failed := w.refuses(ctx, half, server.Code)
		switch {
		case failed != nil:
			return err
		case refused:
			places = half
		default: // and it stays written: two rows may only together be refused
			places = places[len(half):]
		}
	}
	if refused, failed := w.refuses(ctx, places, server.Code); failed != nil || !refused {
		return err
	}
	if without := errors.Unwrap(err); without != nil { // the table, which is named below
		err = without
	}
	row := w.failure(places[0], err)
	return fmt.Errorf("fencepost: table %s, index %d: %w", w.writer.table, row.Index, &row)
}

// aboutARow reports whether a SQLSTATE is about the values of a row: data exceptions and constraints.
func aboutARow(code string) bool {
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23")
}

// refuses writes rows and reports whether PostgreSQL refuses that with the given SQLSTATE. It undoes only what was
// refused; the savepoint of that goes with the transaction. Any other end is an error.
func (w *batchWrite) refuses(ctx context.Context, places []int, code string) (refused bool, err error) {
	p, err := w.encoder.cut(places)
	if err != nil {
		return false, err
	}
	var updated int
	err = w.send(ctx, func(b *pgx.Batch) {
		b.Queue(rowSavepointSQL)
		stmt, _ := w.sql(w.names, p, int64(w.claim.Token))
		w.queueCount(b, &updated, func() { b.Queue(stmt.SQL, stmt.Args...) })
		b.Queue(releaseRowSQL)
	})
	if server, ok := pgerr.ServerError(err); !ok || server.Code != code {
		return false, err
	}
	return true, w.send(ctx, func(b *pgx.Batch) { b.Queue(undoRowSQL) })
}
