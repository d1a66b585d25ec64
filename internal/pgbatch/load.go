package pgbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// MaxListed is how many rows the *BatchError of a load lists. Its counts cover all rows.
const MaxListed = 1000

// mergeTries bounds how often a merge is retried after 40001 or 40P01.
const mergeTries = 5

// Staged is a set of rows that have been sent to the server and are not in their table yet. It belongs to the
// transaction in which it was made, and is not safe for concurrent use.
type Staged struct {
	tx   pgx.Tx
	sql  loadSQL
	rows int64
}

// Rows is how many rows have been sent.
func (s *Staged) Rows() int64 { return s.rows }

// Stage copies rows into a temporary table of the transaction, from which [Staged.Merge] writes them. It guards nothing
// and locks no row, so a slow source, or a worker that is paused while it sends, does not make a claim wait: the guard
// comes with the merge. columns are those of a row of the source, in its order: all key columns, and not the token
// column. A transaction may stage rows of one shape only once.
//
// The table is dropped when the transaction ends, however it ends, even behind a pooler. The user needs the privilege
// TEMPORARY on the database, and SELECT on the columns.
//
// Values are encoded as by pgx.Conn.CopyFrom, in the binary format: types that pgx does not know, arrays of enums for
// example, must be registered with the connection.
//
// Another goroutine reads the source and has ended when Stage returns; if the source panics, so does Stage. ctx is
// checked before each row. A source that blocks in Next or Values blocks Stage, whatever ctx says, because nothing can
// make it return: it must watch a context of its own.
//
// Errors of the source are returned unchanged. Other errors: ErrInvalid before anything is sent; ErrUnavailable, also
// if the privilege is missing; errors of the server with their SQLSTATE. ctx bounds the call.
func (b *BatchWriter) Stage(
	ctx context.Context, tx pgx.Tx, columns []string, source pgx.CopyFromSource,
) (*Staged, error) {
	sql, err := b.loading(columns)
	if err := errors.Join(err, pgsession.CheckReady(tx.Conn())); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sql.shape())
	if err != nil {
		return nil, pgerr.Interpret(ctx, "load", err, false)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, pgerr.Interpret(ctx, "load", err, false)
	}
	fields := slices.Clone(rows.FieldDescriptions()) // the connection's own, until its next query
	sql.staging = stagingName(b.table, fields)
	if _, err := tx.Exec(ctx, sql.create()); err != nil {
		return nil, interpretCreate(ctx, err)
	}
	n, err := b.copyFrom(ctx, tx, sql, fields, source)
	if err != nil {
		return nil, err
	}
	return &Staged{tx: tx, sql: sql, rows: n}, nil
}

func (b *BatchWriter) copyFrom(
	ctx context.Context, tx pgx.Tx, sql loadSQL, fields []pgconn.FieldDescription, source pgx.CopyFromSource,
) (int64, error) {
	copying, giveUp := context.WithCancel(ctx)
	defer giveUp()
	recorder := &sourceRecorder{
		source:  source,
		columns: sql.columns,
		keys:    sql.writer.table.Key,
		ctx:     copying,
		giveUp:  giveUp,
	}
	n, err := tx.CopyFrom(copying, pgx.Identifier{"pg_temp", sql.staging}, sql.columns, recorder)
	switch {
	case recorder.panicked != nil:
		panic(recorder.panicked)
	case recorder.gone:
		return 0, errSourceGone
	case err != nil:
		return 0, recorder.interpret(ctx, err, tx.Conn().TypeMap(), fields)
	}
	return n, nil
}

// loading checks the columns of a load.
func (b *BatchWriter) loading(columns []string) (loadSQL, error) {
	sql := loadSQL{writer: b, columns: slices.Clone(columns)}
	for _, name := range columns {
		if !slices.Contains(b.table.Key, name) {
			sql.names = append(sql.names, name)
		}
	}
	for _, name := range b.table.Key {
		others := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == name })
		if n := len(columns) - len(others); n != 1 {
			return sql, pgerr.Invalidf("key column %q stands %d times among the columns of a load, not once", name, n)
		}
	}
	return sql, errors.Join(b.checkWritten(sql.names), b.checkGiven(sql.names))
}

// interpretCreate says what is missing. Nothing was written.
func interpretCreate(ctx context.Context, err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42501" {
		return fmt.Errorf("%w: a load needs TEMPORARY on the database, and USAGE and SELECT on what it loads into: %w",
			pgerr.ErrUnavailable, err)
	}
	return pgerr.Interpret(ctx, "load", err, false)
}

// sourceRecorder remembers what a source said last. If that ends a copy, PostgreSQL says only that the copy was given
// up.
//
// pgx calls it in a goroutine of its own. There a panic would end the process, and runtime.Goexit would leave the copy
// waiting forever.
type sourceRecorder struct {
	source   pgx.CopyFromSource
	columns  []string
	keys     []string
	ctx      context.Context //nolint:containedctx // the source's interface has no room for it
	giveUp   context.CancelFunc
	last     []any
	err      error
	gone     bool // the source did not return
	panicked any
}

var errSourceGone = pgerr.Invalidf("the source of a load ended its goroutine")

func (h *sourceRecorder) Next() (more bool) {
	if h.gone || h.ctx.Err() != nil {
		return false
	}
	returned := false
	defer func() { h.notice(returned, recover()) }()
	more = h.source.Next()
	returned = true
	return more
}

func (h *sourceRecorder) Values() (values []any, err error) {
	returned := false
	defer func() { h.notice(returned, recover()) }()
	values, err = h.source.Values()
	returned = true
	if err == nil && len(values) != len(h.columns) {
		err = pgerr.Invalidf("a row of a load has %d values, not %d", len(values), len(h.columns))
	}
	if err == nil {
		err = h.refuseNullKey(values)
	}
	h.last, h.err = values, err
	return values, err
}

// refuseNullKey saves sending the rows. The staging table would accept a NULL, and the merge would then say only that a
// constraint is violated.
func (h *sourceRecorder) refuseNullKey(values []any) error {
	for i, name := range h.columns {
		if pgtable.IsNull(values[i]) && slices.Contains(h.keys, name) {
			return pgerr.Invalidf("key column %q of a load: a key value is NULL", name)
		}
	}
	return nil
}

func (h *sourceRecorder) Err() error {
	if h.gone {
		return errSourceGone
	}
	returned := false
	defer func() { h.notice(returned, recover()) }()
	err := h.source.Err()
	returned = true
	if err != nil {
		h.err = err
	}
	return cmp.Or(h.err, h.ctx.Err())
}

// notice makes the copy end if the source did not return: a panic is re-raised once the copy has ended.
func (h *sourceRecorder) notice(returned bool, panicked any) {
	if returned {
		return
	}
	h.gone, h.panicked = true, panicked
	if panicked == nil { // pgx gets no more rows either
		h.giveUp()
	}
}

func (h *sourceRecorder) interpret(
	ctx context.Context,
	err error,
	codec *pgtype.Map,
	fields []pgconn.FieldDescription,
) error {
	if h.err != nil {
		return h.err
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == pgerr.CodeQueryCanceled {
		for i, value := range h.last {
			if problem := encodable(codec, fields[i].DataTypeOID, value); problem != nil {
				return pgerr.Invalidf("column %q: %w", h.columns[i], problem)
			}
		}
	}
	return pgerr.Interpret(ctx, "load", err, false)
}

// encodable says why a value cannot be copied, in its binary form or as a text that can be parsed.
func encodable(codec *pgtype.Map, oid uint32, value any) error {
	_, err := codec.Encode(oid, pgtype.BinaryFormatCode, value, nil)
	if err == nil {
		return nil
	}
	form, textErr := codec.Encode(oid, pgtype.TextFormatCode, value, nil)
	var read any
	if textErr != nil || codec.Scan(oid, pgtype.TextFormatCode, form, &read) != nil {
		return err
	}
	return nil
}

// Merge writes the rows under a claim, in the order of their keys: all of them or none. It guards the transaction
// itself. It inserts rows that do not exist, with defaults in the columns that are not named. It compares the stored
// token. It may be called once.
//
// If a row is stale or refused, nothing is written. A *BatchError counts such rows and lists the first of them, and the
// transaction has been aborted. With [BatchOptions.Partial] the other rows are written and the transaction continues. A
// key that appears twice is ErrInvalid, and nothing is written.
//
// Merge retries by itself after 40001 or 40P01, a bounded number of times: what it had written is undone, while guard
// and staged rows stay. Other errors are those of [Batch.Update]. ctx bounds the call.
func (s *Staged) Merge(ctx context.Context, c pgclaim.Claim, opts *BatchOptions) error {
	if err := errors.Join(c.Check(), pgsession.CheckReady(s.tx.Conn())); err != nil {
		return err
	}
	err := pgerr.NotGranted(s.send(ctx, func(b *pgx.Batch) {
		pgclaim.QueueEnter(b, c)
		b.Queue(shareGateSQL, c.Resource)
		b.Queue(savepointSQL)
	}))
	if err != nil || s.rows == 0 {
		return err
	}
	report, err := s.tries(ctx, c, opts.partial())
	if err == nil && report == nil {
		return nil
	}
	if !opts.partial() {
		abortTx(ctx, s.tx)
	}
	if err != nil {
		return err
	}
	if opts.partial() {
		report.Written = report.Rows - report.Failed()
	}
	return report
}

// tries merges, and retries if that may help. It releases the savepoint once nothing needs to be undone any longer.
func (s *Staged) tries(ctx context.Context, c pgclaim.Claim, partial bool) (*BatchError, error) {
	for try := 1; ; try++ {
		report, err := s.merge(ctx, c, partial)
		switch {
		case err == nil && report != nil && !partial:
			return report, nil // the end of the transaction undoes all of it
		case err == nil:
			return report, s.send(ctx, func(b *pgx.Batch) { b.Queue(releaseSQL) })
		case !pgerr.SafeToRetry(err) || try == mergeTries:
			return nil, err
		}
		if err := s.undo(ctx); err != nil {
			return nil, err
		}
	}
}

func (s *Staged) send(ctx context.Context, queue func(*pgx.Batch)) error {
	return sendRows(ctx, s.tx, s.sql.writer.table, queue)
}

func (s *Staged) undo(ctx context.Context) error {
	return s.send(ctx, func(b *pgx.Batch) { b.Queue(undoSQL) })
}

// merge writes and counts. If the count is wrong it undoes the write and writes again with care, to find out why.
func (s *Staged) merge(ctx context.Context, c pgclaim.Claim, partial bool) (*BatchError, error) {
	if !partial {
		var changed int64
		err := s.send(ctx, func(b *pgx.Batch) {
			b.Queue(s.sql.counted(), int64(c.Token)).QueryRow(func(row pgx.Row) error { return row.Scan(&changed) })
		})
		if err != nil || changed == s.rows {
			return nil, pgrow.OfTable(s.sql.writer.table, c.Token, err)
		}
		if err := s.undo(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.refuseTwice(ctx); err != nil {
		return nil, err
	}
	if err := s.send(ctx, func(b *pgx.Batch) { b.Queue(s.sql.listed(), int64(c.Token)) }); err != nil {
		return nil, pgrow.OfTable(s.sql.writer.table, c.Token, err)
	}
	return s.look(ctx, c)
}

func (s *Staged) refuseTwice(ctx context.Context) error {
	return s.send(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.twice()).Query(func(rows pgx.Rows) error {
			if !rows.Next() {
				return rows.Err()
			}
			key, err := rows.Values()
			if err != nil {
				return err
			}
			return pgerr.Invalidf("key %v stands twice in a load of %s", key, s.sql.writer.table)
		})
	})
}

// look finds out why rows were not written, in statements of their own: see [batchWrite.look].
func (s *Staged) look(ctx context.Context, c pgclaim.Claim) (*BatchError, error) {
	var failed, staleRows int
	report := &BatchError{Table: s.sql.writer.table.String(), Rows: int(s.rows)}
	err := s.send(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.count(), int64(c.Token)).QueryRow(func(row pgx.Row) error { return row.Scan(&failed, &staleRows) })
		b.Queue(s.sql.left()).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				failure, err := s.failure(rows, c.Token)
				if err != nil {
					return err
				}
				report.Failures = append(report.Failures, failure)
			}
			return rows.Err()
		})
	})
	if err != nil || failed == 0 {
		return nil, err
	}
	report.Stale, report.Refused = staleRows, failed-staleRows
	return report, nil
}

func (s *Staged) failure(rows pgx.Rows, tok token.Token) (RowError, error) {
	values, err := rows.Values()
	if err != nil {
		return RowError{}, err
	}
	failure := RowError{Index: -1, Key: values[1:], Err: pgrow.Refused(s.sql.writer.table)}
	if stored, ok := values[0].(int64); ok && token.Token(stored) > tok {
		table := s.sql.writer.table.String()
		failure.Err = &pgerr.StaleError{Resource: table, Token: tok, Current: token.Token(stored), Row: true}
	}
	return failure, nil
}
