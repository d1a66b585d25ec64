package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost-pg/fencepost/token"
)

// MaxListed is how many rows the *ManyError of a load lists. Its counts are of all.
const MaxListed = 1000

// mergeTries bounds how often a merge is tried again after 40001 or 40P01.
const mergeTries = 5

// Staged is rows that have been sent to the server and are not in their table yet. It belongs to the transaction
// that it was made in, and is not safe for concurrent use.
type Staged struct {
	tx   pgx.Tx
	sql  loadSQL
	rows int64
}

// Rows is how many rows have been sent.
func (s *Staged) Rows() int64 { return s.rows }

// Stage copies rows into a temporary table of the transaction's own, from where [Staged.Merge] writes them. It
// guards nothing and locks no row, so that a source that is slow, or a worker that is stopped while it sends,
// keeps no claim waiting: the guard comes with the merge. columns are those of a row of the source, in its order:
// all key columns among them, and not the token column. A transaction stages rows of one shape once.
//
// The table goes with the transaction, whatever its end, also behind a pooler. The user needs the privilege
// TEMPORARY on the database, and SELECT on the columns.
//
// Values are encoded as by pgx.Conn.CopyFrom, in the binary format: types that pgx does not know, arrays of enums
// for instance, have to be registered with the connection.
//
// The source is read by another goroutine, which has ended when Stage returns; where the source panics, Stage does. ctx is
// looked at before each row. A source that waits within Next or Values keeps Stage waiting, whatever ctx says, since nothing
// can make it return: it has to watch a context of its own.
//
// Errors of the source are returned as they are. Errors besides: ErrInvalid before anything is sent; ErrUnavailable, also where the privilege is missing; errors of the
// server with their SQLSTATE. ctx bounds the call.
func (b *Bulk) Stage(ctx context.Context, tx pgx.Tx, columns []string, source pgx.CopyFromSource) (*Staged, error) {
	sql, err := b.loading(columns)
	if err := errors.Join(err, checkFree(tx.Conn())); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, sql.shape())
	if err != nil {
		return nil, interpret(ctx, "load", err, false)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, interpret(ctx, "load", err, false)
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

func (b *Bulk) copyFrom(ctx context.Context, tx pgx.Tx, sql loadSQL, fields []pgconn.FieldDescription, source pgx.CopyFromSource) (int64, error) {
	copying, giveUp := context.WithCancel(ctx)
	defer giveUp()
	heard := &heard{source: source, columns: sql.columns, ctx: copying, giveUp: giveUp}
	n, err := tx.CopyFrom(copying, pgx.Identifier{"pg_temp", sql.staging}, sql.columns, heard)
	switch {
	case heard.panicked != nil:
		panic(heard.panicked)
	case heard.gone:
		return 0, errSourceGone
	case err != nil:
		return 0, heard.interpret(ctx, err, tx.Conn().TypeMap(), fields)
	}
	return n, nil
}

// loading checks the columns of a load.
func (b *Bulk) loading(columns []string) (loadSQL, error) {
	sql := loadSQL{bulk: b, columns: slices.Clone(columns)}
	for _, name := range columns {
		if !slices.Contains(b.table.Key, name) {
			sql.names = append(sql.names, name)
		}
	}
	for _, name := range b.table.Key {
		if n := len(columns) - len(slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == name })); n != 1 {
			return sql, invalidf("key column %q stands %d times among the columns of a load, not once", name, n)
		}
	}
	return sql, errors.Join(b.checkWritten(sql.names), b.checkGiven(sql.names))
}

// interpretCreate says what is missing. Nothing was written.
func interpretCreate(ctx context.Context, err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == "42501" {
		return fmt.Errorf("%w: a load needs TEMPORARY on the database, and USAGE and SELECT on what it loads into: %w", ErrUnavailable, err)
	}
	return interpret(ctx, "load", err, false)
}

// heard remembers what a source said last. Where a copy is given up for it, PostgreSQL says only that it was.
//
// pgx calls it in a goroutine of its own, where a panic would end the process, and runtime.Goexit leave the copy waiting
// for ever.
type heard struct {
	source   pgx.CopyFromSource
	columns  []string
	ctx      context.Context //nolint:containedctx // the source's interface has no room for it
	giveUp   context.CancelFunc
	last     []any
	err      error
	gone     bool // the source did not return
	panicked any
}

var errSourceGone = invalidf("the source of a load ended its goroutine")

func (h *heard) Next() (more bool) {
	if h.gone || h.ctx.Err() != nil {
		return false
	}
	returned := false
	defer func() { h.notice(returned, recover()) }()
	more = h.source.Next()
	returned = true
	return more
}

func (h *heard) Values() (values []any, err error) {
	returned := false
	defer func() { h.notice(returned, recover()) }()
	values, err = h.source.Values()
	returned = true
	if err == nil && len(values) != len(h.columns) {
		err = invalidf("a row of a load has %d values, not %d", len(values), len(h.columns))
	}
	h.last, h.err = values, err
	return values, err
}

func (h *heard) Err() error {
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

// notice sees to it that the copy ends where the source did not return: a panic is passed on once it has ended.
func (h *heard) notice(returned bool, panicked any) {
	if returned {
		return
	}
	h.gone, h.panicked = true, panicked
	if panicked == nil { // pgx hears no more of it either
		h.giveUp()
	}
}

func (h *heard) interpret(ctx context.Context, err error, codec *pgtype.Map, fields []pgconn.FieldDescription) error {
	if h.err != nil {
		return h.err
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == codeQueryCanceled {
		for i, value := range h.last {
			if problem := encodable(codec, fields[i].DataTypeOID, value); problem != nil {
				return invalidf("column %q: %w", h.columns[i], problem)
			}
		}
	}
	return interpret(ctx, "load", err, false)
}

// encodable tells why a value cannot be copied: in its binary form, or else as a text that can be read.
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
// itself. Rows that are not there are inserted, with defaults in the columns that are not named. The token
// compared is the one that is stored. It is called once.
//
// Nothing is written where a row is stale or refused: a *ManyError counts such rows and lists the first of them, and
// the transaction has been aborted. With [ManyOptions.Partial] the other rows are written and the transaction
// goes on. A key that stands twice is ErrInvalid, and nothing is written.
//
// A merge that meets 40001 or 40P01 is tried again by itself, a bounded number of times: what it had written is
// undone, while guard and rows stay. Other errors are those of [Batch.Update]. ctx bounds the call.
func (s *Staged) Merge(ctx context.Context, c Claim, opts *ManyOptions) error {
	if err := errors.Join(c.Check(), checkFree(s.tx.Conn())); err != nil {
		return err
	}
	err := notGranted(s.send(ctx, func(b *pgx.Batch) {
		QueueGuard(b, c)
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
		doom(ctx, s.tx)
	}
	if err != nil {
		return err
	}
	if opts.partial() {
		report.Written = report.Rows - report.Failed()
	}
	return report
}

// tries merges, again where that may help, and releases the savepoint once there is nothing to be undone any more.
func (s *Staged) tries(ctx context.Context, c Claim, partial bool) (*ManyError, error) {
	for try := 1; ; try++ {
		report, err := s.merge(ctx, c, partial)
		switch {
		case err == nil && report != nil && !partial:
			return report, nil // all of it is undone by the transaction's end
		case err == nil:
			return report, s.send(ctx, func(b *pgx.Batch) { b.Queue(releaseSQL) })
		case !SafeToRetry(err) || try == mergeTries:
			return nil, err
		}
		if err := s.undo(ctx); err != nil {
			return nil, err
		}
	}
}

func (s *Staged) send(ctx context.Context, queue func(*pgx.Batch)) error {
	return sendMany(ctx, s.tx, s.sql.bulk.table, queue)
}

func (s *Staged) undo(ctx context.Context) error {
	return s.send(ctx, func(b *pgx.Batch) { b.Queue(undoSQL) })
}

// merge writes and counts. Where the count is wrong it undoes that and writes again with care, to tell why.
func (s *Staged) merge(ctx context.Context, c Claim, partial bool) (*ManyError, error) {
	if !partial {
		var changed int64
		err := s.send(ctx, func(b *pgx.Batch) {
			b.Queue(s.sql.merge(), int64(c.Token)).Exec(func(tag pgconn.CommandTag) error {
				changed = tag.RowsAffected()
				return nil
			})
		})
		if err != nil || changed == s.rows {
			return nil, err
		}
		if err := s.undo(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.refuseTwice(ctx); err != nil {
		return nil, err
	}
	if err := s.send(ctx, func(b *pgx.Batch) { b.Queue(s.sql.careful(), int64(c.Token)) }); err != nil {
		return nil, err
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
			return invalidf("key %v stands twice in a load of %s", key, s.sql.bulk.table)
		})
	})
}

// look tells why rows were not written, in statements of their own: see [manyWrite.look].
func (s *Staged) look(ctx context.Context, c Claim) (*ManyError, error) {
	var failed, staleRows int
	report := &ManyError{Table: s.sql.bulk.table.String(), Rows: int(s.rows)}
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
	failure := RowError{Index: -1, Key: values[1:], Err: refused(s.sql.bulk.table)}
	if stored, ok := values[0].(int64); ok && token.Token(stored) > tok {
		failure.Err = &StaleError{Resource: s.sql.bulk.table.String(), Token: tok, Current: token.Token(stored), Row: true}
	}
	return failure, nil
}
