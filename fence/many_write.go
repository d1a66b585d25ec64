package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/token"
)

// Batches of one resource meet at a gate, so that they do not deadlock over their rows. Whoever finds it free has
// it alone and takes its rows as they come, which is as fast as it gets. Others then pass it together, and lock
// their rows in the order of their keys first. Two resources that share a hash meet for nothing.
const (
	tryGateSQL   = `SELECT pg_catalog.pg_try_advisory_xact_lock(1179534161, pg_catalog.hashtext($1::text COLLATE "C"))`
	shareGateSQL = `SELECT pg_catalog.pg_advisory_xact_lock_shared(1179534161, pg_catalog.hashtext($1::text COLLATE "C"))`
)

// manyWrite is one run of a batch.
type manyWrite struct {
	*Batch
	tx      pgx.Tx
	claim   Claim
	sql     manySQL
	inserts bool // a row that is not there is made
	ordered bool // rows are locked in the order of their keys first
	further bool // this transaction has had a batch before
	encoder encoder
	report  *ManyError
}

func (b *Batch) write(ctx context.Context, tx pgx.Tx, c Claim, opts *ManyOptions, sql manySQL, inserts bool) error {
	if err := errors.Join(c.Check(), checkFree(tx.Conn())); err != nil {
		return err
	}
	w := &manyWrite{
		Batch: b, tx: tx, claim: c, sql: sql, inserts: inserts,
		encoder: encoder{batch: b, codec: tx.Conn().TypeMap()},
		report:  &ManyError{Table: b.bulk.table.String(), Rows: len(b.rows)},
	}
	if err := w.enter(ctx); err != nil || len(b.rows) == 0 {
		return err
	}
	err := w.run(ctx, opts.partial())
	if err == nil && w.report.Failed() == 0 {
		return nil
	}
	if !opts.partial() {
		doom(ctx, tx)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(w.report.Failures, func(a, b RowError) int { return cmp.Compare(a.Index, b.Index) })
	if opts.partial() {
		w.report.Written = len(b.rows) - w.report.Failed()
	}
	return w.report
}

// run writes the rows, or reports why not. An error may leave some of them written.
func (w *manyWrite) run(ctx context.Context, partial bool) error {
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
		done, err := w.careless(ctx, places, first)
		if done || err != nil {
			return err
		}
	}
	return w.careful(ctx, places)
}

// enter guards the transaction and passes the gate. The savepoint comes after both: its rollback drops neither.
func (w *manyWrite) enter(ctx context.Context) error {
	var alone bool
	err := notGranted(w.send(ctx, func(b *pgx.Batch) {
		QueueGuard(b, w.claim)
		b.Queue(furtherSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&w.further, nil) })
		b.Queue(tryGateSQL, w.claim.Resource).QueryRow(func(row pgx.Row) error { return row.Scan(&alone) })
	}))
	w.ordered = !alone
	if err == nil && w.ordered {
		err = w.send(ctx, func(b *pgx.Batch) { b.Queue(shareGateSQL, w.claim.Resource) })
	}
	return err
}

func (w *manyWrite) send(ctx context.Context, queue func(*pgx.Batch)) error {
	return sendMany(ctx, w.tx, w.bulk.table, queue)
}

func sendMany(ctx context.Context, tx pgx.Tx, table Table, queue func(*pgx.Batch)) error {
	var b pgx.Batch
	queue(&b)
	err := tx.SendBatch(ctx, &b).Close()
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == codeTwice {
		return invalidf("two keys are one in %s: %w", table, err)
	}
	return interpret(ctx, "write many", err, false)
}

// codeTwice is cardinality_violation: an INSERT … ON CONFLICT meets a row a second time.
const codeTwice = "21000"

// sort puts rows into the order of their keys, in which the parts then follow one another. It refuses two keys that
// are one in PostgreSQL; within one part it takes no sorting to notice them.
func (w *manyWrite) sort(ctx context.Context, places []int) ([]int, error) {
	keys, err := w.encoder.keysOf(places)
	if err != nil {
		return nil, err
	}
	sorted := make([]int, 0, len(places))
	stmt := w.bulk.orderSQL(keys)
	var n int
	var twice bool
	err = w.each(ctx, stmt, []any{&n, &twice}, func() error {
		place := places[n-1]
		if twice {
			return invalidf("rows %v and %v of the batch are one in %s", w.rows[sorted[len(sorted)-1]].Key, w.rows[place].Key, w.bulk.table)
		}
		sorted = append(sorted, place)
		return nil
	})
	return sorted, err
}

// each runs a query and calls fn for every row that it returns.
func (w *manyWrite) each(ctx context.Context, stmt statement, into []any, fn func() error) error {
	return w.send(ctx, func(b *pgx.Batch) {
		b.Queue(stmt.sql, stmt.args...).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, into, fn)
			return err
		})
	})
}

// furtherSQL tells whether the transaction has had a batch before, and remembers this one: for the transaction, and
// where the caller rolls back to a savepoint, for as long as what the batch wrote.
const furtherSQL = `SELECT coalesce(pg_catalog.current_setting('fencepost.many', true), '') <> '',
	pg_catalog.set_config('fencepost.many', 'on', true)`

const (
	savepointSQL = `SAVEPOINT fencepost_many`
	undoSQL      = `ROLLBACK TO SAVEPOINT fencepost_many`
	releaseSQL   = `RELEASE SAVEPOINT fencepost_many`
)

// careless writes all parts and counts. Where the count is wrong it undoes all of them and reports false: somebody
// has to look.
func (w *manyWrite) careless(ctx context.Context, places []int, p part) (done bool, err error) {
	for begun := false; ; begun = true {
		var changed int64
		err := w.send(ctx, func(b *pgx.Batch) {
			if !begun {
				b.Queue(savepointSQL)
			}
			w.queueLock(b, p)
			stmt, _ := w.sql(w.names, p, int64(w.claim.Token))
			b.Queue(stmt.sql, stmt.args...).Exec(func(tag pgconn.CommandTag) error {
				changed = tag.RowsAffected()
				return nil
			})
		})
		if err != nil {
			return false, err
		}
		if changed != int64(len(p.places)) {
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

// release ends the savepoint of a batch that has been written. The one of a transaction's first batch, which is the only
// one as a rule, goes with the transaction; those of further ones would nest.
func (w *manyWrite) release(ctx context.Context) error {
	if !w.further {
		return nil
	}
	return w.send(ctx, func(b *pgx.Batch) { b.Queue(releaseSQL) })
}

func (w *manyWrite) queueLock(b *pgx.Batch, p part) {
	if w.ordered {
		stmt := w.bulk.lockSQL(p)
		b.Queue(stmt.sql, stmt.args...)
	}
}

// careful writes what can be written and tells why the rest cannot. A row that looks as if it could be written by
// now, because another transaction has ended in between, is tried once more.
func (w *manyWrite) careful(ctx context.Context, places []int) error {
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
		w.report.add(w.failure(place, refused(w.bulk.table)), denied)
	}
	return nil
}

// attempt returns the rows that it did not write.
func (w *manyWrite) attempt(ctx context.Context, places []int) (left []int, err error) {
	for len(places) > 0 {
		p, err := w.encoder.cut(places)
		if err != nil {
			return nil, err
		}
		places = places[len(p.places):]
		err = w.send(ctx, func(b *pgx.Batch) {
			w.queueLock(b, p)
			_, stmt := w.sql(w.names, p, int64(w.claim.Token))
			b.Queue(stmt.sql, stmt.args...).Query(func(rows pgx.Rows) error {
				var n int
				_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
					left = append(left, p.places[n-1])
					return nil
				})
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return left, nil
}

// verdict is why a row was not written.
type verdict int

const (
	stale verdict = iota
	missing
	denied
)

// look asks, in a statement of its own, why rows were not written: the snapshot of the one that did not write them
// is older than its wait for their locks. It returns the rows that by now could be.
func (w *manyWrite) look(ctx context.Context, places []int) (open []int, err error) {
	if len(places) == 0 {
		return nil, nil
	}
	keys, err := w.encoder.keysOf(places)
	if err != nil {
		return nil, err
	}
	var n int
	var stored *token.Token
	err = w.each(ctx, w.bulk.lookSQL(keys), []any{&n, &stored}, func() error {
		place := places[n-1]
		switch {
		case stored == nil && w.inserts:
			open = append(open, place)
		case stored == nil:
			w.report.add(w.failure(place, fmt.Errorf("%w in %s", ErrNotFound, w.bulk.table)), missing)
		case *stored > w.claim.Token:
			w.report.add(w.failure(place, w.staleRow(*stored)), stale)
		default:
			open = append(open, place)
		}
		return nil
	})
	return open, err
}

func (w *manyWrite) staleRow(current token.Token) error {
	return &StaleError{Resource: w.bulk.table.String(), Token: w.claim.Token, Current: current, Row: true}
}

func (w *manyWrite) failure(place int, err error) RowError {
	return RowError{Index: place, Key: w.rows[place].Key, Err: err}
}

// doom aborts a transaction, as a guard does, so that nothing in it commits even where the error is overlooked. ctx may
// have ended: under it nothing would be sent, and the transaction would stand.
func doom(ctx context.Context, tx pgx.Tx) {
	if tx.Conn().PgConn().TxStatus() != 'T' {
		return // aborted already, or gone
	}
	const patience = 5 * time.Second
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	// The server refuses a claim without a resource; where it does not answer, the connection is closed, and nothing
	// commits either.
	_, _ = tx.Exec(detached, enterSQL, nil, 0, nil)
}
