package pgbatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgrow"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
	"github.com/fencepost-pg/fencepost/internal/pgsql"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// Batches of one resource pass a gate, so that they do not deadlock over their rows. A batch that finds it free has it
// to itself and locks its rows in the given order, which is fastest. Other batches then pass it together, and first
// lock their rows in the order of their keys. Two resources that share a hash use the same gate, which does no harm.
const (
	tryGateSQL   = `SELECT pg_catalog.pg_try_advisory_xact_lock(1179534161, pg_catalog.hashtext($1::text COLLATE "C"))`
	shareGateSQL = `SELECT pg_catalog.pg_advisory_xact_lock_shared(1179534161, pg_catalog.hashtext($1::text COLLATE "C"))`
)

// batchWrite is one write of a batch.
type batchWrite struct {
	*Batch
	tx      pgx.Tx
	claim   pgclaim.Claim
	sql     writeSQL
	inserts bool // rows that do not exist are inserted
	ordered bool // rows are locked in the order of their keys first
	further bool // the transaction has had a batch before
	encoder encoder

	inserted int // how many of the rows written
	report   *BatchError
}

func (b *Batch) write(
	ctx context.Context, tx pgx.Tx, c pgclaim.Claim, opts *BatchOptions, sql writeSQL, inserts bool,
) (inserted int, err error) {
	if err := errors.Join(c.Check(), pgsession.CheckReady(tx.Conn())); err != nil {
		return 0, err
	}
	w := &batchWrite{
		Batch: b, tx: tx, claim: c, sql: sql, inserts: inserts,
		encoder: encoder{batch: b, codec: tx.Conn().TypeMap()},
		report:  &BatchError{Table: b.writer.table.String(), Rows: len(b.rows)},
	}
	if err := w.enter(ctx); err != nil || len(b.rows) == 0 {
		return 0, err
	}
	err = w.run(ctx, opts.partial())
	if err == nil && w.report.Failed() == 0 {
		return w.inserted, nil
	}
	if !opts.partial() {
		abortTx(ctx, tx)
	}
	if err != nil {
		return 0, err
	}
	slices.SortFunc(w.report.Failures, func(a, b RowError) int { return cmp.Compare(a.Index, b.Index) })
	if !opts.partial() {
		return 0, w.report
	}
	w.report.Written = len(b.rows) - w.report.Failed()
	return w.inserted, w.report
}

// run writes the rows, or reports why not. After an error some of them may have been written.
func (w *batchWrite) run(ctx context.Context, partial bool) error {
	places := make([]int, len(w.rows))
	for i := range places {
		places[i] = i
	}
	first, err := w.encoder.cut(places)
	if err == nil && len(first.places) < len(places) {
		if places, err = w.sort(ctx, places); err == nil {
			first, err = w.encoder.cut(places)
		}
	}
	if err != nil {
		return err
	}
	if !partial {
		done, err := w.writeCounted(ctx, places, first)
		if done || err != nil {
			return err
		}
	}
	return w.writeListed(ctx, places)
}

// enter guards the transaction and passes the gate. The savepoint comes after both, so its rollback drops neither.
func (w *batchWrite) enter(ctx context.Context) error {
	var alone bool
	err := pgerr.NotGranted(w.send(ctx, func(b *pgx.Batch) {
		pgclaim.QueueEnter(b, w.claim)
		b.Queue(furtherSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&w.further, nil) })
		b.Queue(tryGateSQL, w.claim.Resource).QueryRow(func(row pgx.Row) error { return row.Scan(&alone) })
	}))
	w.ordered = !alone
	if err == nil && w.ordered {
		err = w.send(ctx, func(b *pgx.Batch) { b.Queue(shareGateSQL, w.claim.Resource) })
	}
	return err
}

func (w *batchWrite) send(ctx context.Context, queue func(*pgx.Batch)) error {
	return pgrow.OfTable(w.writer.table, w.claim.Token, sendRows(ctx, w.tx, w.writer.table, queue))
}

func sendRows(ctx context.Context, tx pgx.Tx, table pgtable.Table, queue func(*pgx.Batch)) error {
	var b pgx.Batch
	queue(&b)
	err := tx.SendBatch(ctx, &b).Close()
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == codeTwice {
		return pgerr.Invalidf("two keys are one in %s: %w", table, err)
	}
	return pgerr.Interpret(ctx, "write a batch", err, false)
}

// codeTwice is cardinality_violation: an INSERT … ON CONFLICT meets a row a second time.
const codeTwice = "21000"

// sort puts rows into the order of their keys, in which the parts then follow one another. It refuses two keys that are
// equal in PostgreSQL; within one part they are noticed without sorting.
func (w *batchWrite) sort(ctx context.Context, places []int) ([]int, error) {
	keys, err := w.encoder.keysOf(places)
	if err != nil {
		return nil, err
	}
	sorted := make([]int, 0, len(places))
	stmt := w.writer.orderSQL(keys)
	var n int
	var twice bool
	err = w.each(ctx, stmt, []any{&n, &twice}, func() error {
		place := places[n-1]
		if twice {
			other := w.rows[sorted[len(sorted)-1]].Key
			return pgerr.Invalidf("rows %v and %v of the batch are one in %s", other, w.rows[place].Key, w.writer.table)
		}
		sorted = append(sorted, place)
		return nil
	})
	return sorted, err
}

// each runs a query and calls fn for every row that it returns.
func (w *batchWrite) each(ctx context.Context, stmt pgsql.Statement, into []any, fn func() error) error {
	return w.send(ctx, func(b *pgx.Batch) {
		b.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, into, fn)
			return err
		})
	})
}

// furtherSQL reports whether the transaction has had a batch before, and records this one. The record lasts for the
// transaction or, if the caller rolls back to a savepoint, as long as the batch's writes do.
const furtherSQL = `SELECT coalesce(pg_catalog.current_setting('fencepost.batch', true), '') <> '',
	pg_catalog.set_config('fencepost.batch', 'on', true)`

const (
	savepointSQL = `SAVEPOINT fencepost_batch`
	undoSQL      = `ROLLBACK TO SAVEPOINT fencepost_batch`
	releaseSQL   = `RELEASE SAVEPOINT fencepost_batch`
)

// writeCounted writes all parts and counts. If the count is wrong it undoes all of them and reports false:
// [batchWrite.writeListed] tells why.
func (w *batchWrite) writeCounted(ctx context.Context, places []int, p part) (done bool, err error) {
	for begun := false; ; begun = true {
		var changed int64
		var updated int
		err := w.send(ctx, func(b *pgx.Batch) {
			if !begun {
				b.Queue(savepointSQL)
			}
			w.queueLock(b, p)
			stmt, _ := w.sql(w.names, p, int64(w.claim.Token))
			w.queueCount(b, &updated, func() {
				b.Queue(stmt.SQL, stmt.Args...).Exec(func(tag pgconn.CommandTag) error {
					changed = tag.RowsAffected()
					return nil
				})
			})
		})
		if err != nil {
			return false, w.blame(ctx, p.places, err)
		}
		w.inserted += len(p.places) - updated
		if changed != int64(len(p.places)) {
			w.inserted = 0
			return false, w.send(ctx, func(b *pgx.Batch) { b.Queue(undoSQL); b.Queue(releaseSQL) })
		}
		places = places[len(p.places):]
		if len(places) == 0 {
			return true, w.release(ctx)
		}
		if p, err = w.encoder.cut(places); err != nil {
			return false, err
		}
	}
}

// release ends the savepoint of a batch that has been written. The savepoint of a transaction's first batch, usually
// the only one, ends with the transaction; those of later batches would nest.
func (w *batchWrite) release(ctx context.Context) error {
	if !w.further {
		return nil
	}
	return w.send(ctx, func(b *pgx.Batch) { b.Queue(releaseSQL) })
}

// queueCount queues a statement between what counts, for a batch that inserts, how many of its rows it only updated.
func (w *batchWrite) queueCount(b *pgx.Batch, updated *int, queue func()) {
	if !w.inserts {
		queue()
		return
	}
	b.Queue(countFromZero)
	queue()
	b.Queue(updatedSQL).QueryRow(func(row pgx.Row) error { return row.Scan(updated) })
}

func (w *batchWrite) queueLock(b *pgx.Batch, p part) {
	if w.ordered {
		stmt := w.writer.lockSQL(p)
		b.Queue(stmt.SQL, stmt.Args...)
	}
}

// writeListed writes the rows that can be written and finds out why the others cannot. If it looks as if a row could be
// written now, because another transaction has ended in between, it tries the row once more.
func (w *batchWrite) writeListed(ctx context.Context, places []int) error {
	places, err := w.sort(ctx, places)
	if err != nil {
		return err
	}
	for range 2 {
		left, err := w.attempt(ctx, places)
		if err != nil {
			return err
		}
		if places, err = w.look(ctx, left); err != nil || len(places) == 0 {
			return err
		}
	}
	for _, place := range places {
		w.report.add(w.failure(place, pgrow.Refused(w.writer.table)), denied)
	}
	return nil
}

// attempt returns the rows that it did not write.
func (w *batchWrite) attempt(ctx context.Context, places []int) (left []int, err error) {
	for len(places) > 0 {
		p, err := w.encoder.cut(places)
		if err != nil {
			return nil, err
		}
		places = places[len(p.places):]
		before, updated := len(left), 0
		err = w.send(ctx, func(b *pgx.Batch) {
			w.queueLock(b, p)
			_, stmt := w.sql(w.names, p, int64(w.claim.Token))
			w.queueCount(b, &updated, func() {
				b.Queue(stmt.SQL, stmt.Args...).Query(func(rows pgx.Rows) error {
					var n int
					_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
						left = append(left, p.places[n-1])
						return nil
					})
					return err
				})
			})
		})
		if err != nil {
			return nil, err
		}
		w.inserted += len(p.places) - (len(left) - before) - updated
	}
	return left, nil
}

// verdict says why a row was not written.
type verdict int

const (
	stale verdict = iota
	missing
	denied
)

// look asks, in a statement of its own, why rows were not written, because the snapshot of the statement that did not
// write them is older than its wait for their locks. It returns the rows that could be written now.
func (w *batchWrite) look(ctx context.Context, places []int) (open []int, err error) {
	if len(places) == 0 {
		return nil, nil
	}
	keys, err := w.encoder.keysOf(places)
	if err != nil {
		return nil, err
	}
	var n int
	var stored *token.Token
	err = w.each(ctx, w.writer.lookSQL(keys), []any{&n, &stored}, func() error {
		place := places[n-1]
		switch {
		case stored == nil && w.inserts:
			open = append(open, place)
		case stored == nil:
			w.report.add(w.failure(place, fmt.Errorf("%w in %s", pgerr.ErrNotFound, w.writer.table)), missing)
		case *stored > w.claim.Token:
			w.report.add(w.failure(place, w.staleRow(*stored)), stale)
		default:
			open = append(open, place)
		}
		return nil
	})
	return open, err
}

func (w *batchWrite) staleRow(current token.Token) error {
	return &pgerr.StaleError{Resource: w.writer.table.String(), Token: w.claim.Token, Current: current, Row: true}
}

func (w *batchWrite) failure(place int, err error) RowError {
	return RowError{Index: place, Key: w.rows[place].Key, Err: err}
}

// abortTx aborts a transaction, as a guard does, so nothing in it commits even if the error is ignored. ctx may have
// ended: nothing would be sent under it, and the transaction would stand.
func abortTx(ctx context.Context, tx pgx.Tx) {
	if tx.Conn().PgConn().TxStatus() != 'T' {
		return // aborted already, or gone
	}
	const patience = 5 * time.Second
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	// The server refuses a claim without a resource. If it does not answer, the connection is closed, and nothing
	// commits either.
	_, _ = tx.Exec(detached, pgclaim.EnterText, nil, 0, nil)
}
