package fencepost

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/internal/pgcommit"
)

// guardedTx is the transaction that a TxFunc gets. The function can do anything with it except end it.
//
// Invariant: the guard is at the transaction's top level. Savepoints, which Begin makes, come and go below it.
type guardedTx struct {
	liveTx
	mark   pgcommit.Mark
	leases []*Lease   // they guard it, in the order of their resources
	claims []Claim    // of the leases, as they were entered
	first  [1]Claim   // space for the claim of one lease
	held   held       // in the context of the function
	within *guardedTx // the transaction in whose savepoint Join runs this one; nil otherwise

	called string       // Commit or Rollback, whichever the function called first
	open   []*savepoint // begun and not ended, the innermost last

	returned atomic.Bool // the function has returned: its transaction must not be used or joined
}

// newGuardedTx returns a transaction that has not begun.
func newGuardedTx(leases []*Lease) *guardedTx {
	t := &guardedTx{leases: leases}
	t.of = t
	return t
}

// savepoint is the transaction that a function gets from Begin.
type savepoint struct{ liveTx }

// liveTx is a transaction, or a savepoint in one, that can be used only until the function that got it returns.
type liveTx struct {
	pgx.Tx
	of *guardedTx // the transaction that the function got
}

// live returns the transaction while the function runs, and afterwards one whose methods return pgx.ErrTxClosed. The
// guarded COMMIT does not go through pgx's own transaction. Without this, that transaction would go on, unguarded, on a
// connection that is back in the pool.
func (t liveTx) live() pgx.Tx {
	if !t.of.returned.Load() {
		return t.Tx
	}
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&b, pgx.ErrTxClosed).Tx()
}

func (t liveTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.live().Exec(ctx, sql, args...)
}

func (t liveTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.live().Query(ctx, sql, args...)
}

func (t liveTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.live().QueryRow(ctx, sql, args...)
}

func (t liveTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.live().SendBatch(ctx, b)
}

func (t liveTx) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	return t.live().CopyFrom(ctx, table, columns, rows)
}

func (t liveTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.live().Prepare(ctx, name, sql)
}

func (t liveTx) LargeObjects() pgx.LargeObjects { return t.live().LargeObjects() }

// Begin makes a savepoint. The function must end it before it returns nil.
func (t *guardedTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.begin(ctx, t.live()) }

func (t *guardedTx) begin(ctx context.Context, within pgx.Tx) (pgx.Tx, error) {
	tx, err := within.Begin(ctx)
	if err != nil {
		return nil, err
	}
	s := &savepoint{liveTx{tx, t}}
	t.open = append(t.open, s)
	return s, nil
}

// Begin makes a savepoint within this one.
func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) { return s.of.begin(ctx, s.live()) }

// Commit keeps what was written since the savepoint. Savepoints within this one that are open stay open, because the
// function has not ended them.
func (s *savepoint) Commit(ctx context.Context) error {
	err := s.live().Commit(ctx)
	if err == nil {
		s.of.open = slices.DeleteFunc(s.of.open, func(o *savepoint) bool { return o == s })
	}
	return err
}

// Rollback undoes what was written since the savepoint, including writes within inner savepoints that are still open. A
// rollback that was not sent, because its context had ended, undoes nothing, and the savepoint stays open.
func (s *savepoint) Rollback(ctx context.Context) error {
	err := s.live().Rollback(ctx)
	if i := slices.Index(s.of.open, s); i >= 0 && err == nil {
		s.of.open = s.of.open[:i]
	}
	return err
}

// Commit refuses. The transaction commits when the function returns nil.
func (t *guardedTx) Commit(context.Context) error { return t.refuse("Commit") }

// Rollback refuses. The transaction rolls back when the function returns an error.
func (t *guardedTx) Rollback(context.Context) error { return t.refuse("Rollback") }

func (t *guardedTx) refuse(method string) error {
	if t.called == "" {
		t.called = method
	}
	return t.misuse()
}

func (t *guardedTx) misuse() error {
	return invalidf("the function called %s: a guarded transaction is committed by returning nil "+
		"and rolled back by returning an error", t.called)
}

// check returns an error if the transaction cannot be committed although the function returned nil. A refused call of
// Commit or Rollback counts even if the function overlooked the refusal, because the function may not have meant to
// commit.
func (t *guardedTx) check() error {
	if t.called != "" {
		return t.misuse()
	}
	if err := t.endedInSQL(); err != nil {
		return err
	}
	return t.leftOpen()
}

// leftOpen returns an error if the function has left something open. A result that was not read may have been an error,
// and an open savepoint may have been meant to be rolled back.
func (t *guardedTx) leftOpen() error {
	conn := t.Conn()
	switch {
	case conn.IsClosed():
		return nil
	case conn.PgConn().IsBusy():
		return invalidf("the function left rows or batch results open: " +
			"close them, and look at their error, before returning nil")
	case len(t.open) > 0 && conn.PgConn().TxStatus() == 'T': // a failed one is rolled back anyway, with its own error
		return invalidf("the function left a transaction of tx.Begin open: commit it or roll it back before returning nil")
	}
	return nil
}

// endedInSQL returns an error if the function has sent COMMIT or ROLLBACK as SQL. What the function wrote before that
// was guarded and may be committed. What it wrote afterwards was not guarded.
func (t *guardedTx) endedInSQL() error {
	conn := t.Conn()
	if conn.IsClosed() || conn.PgConn().TxStatus() != 'I' {
		return nil
	}
	return fmt.Errorf(
		"%w: the function ended its transaction by itself, and wrote unguarded from then on",
		ErrOutcomeUnknown,
	)
}

// handedOut returns the guarded transaction that tx is, or that tx is a savepoint of.
func handedOut(tx pgx.Tx) (*guardedTx, error) {
	var t *guardedTx
	switch v := tx.(type) {
	case *guardedTx:
		t = v
	case *savepoint:
		if t = v.of; !slices.Contains(t.open, v) {
			return nil, invalidf("the savepoint has ended")
		}
	}
	switch {
	case t == nil:
		return nil, invalidf("tx is not a transaction that Tx, Do, Once or Join passed to a function")
	case t.returned.Load():
		return nil, invalidf("the function of the transaction has returned")
	case t.endedInSQL() != nil:
		return nil, invalidf("the function has ended its transaction by itself")
	}
	return t, nil
}

// outermost returns the transaction that contains the guard.
func (t *guardedTx) outermost() *guardedTx {
	for t.within != nil {
		t = t.within
	}
	return t
}

// outsideTx refuses a call that has a transaction of its own inside the function of another transaction. The call would
// wait for the outer transaction's rows, and its writes would remain if the outer one is rolled back.
func outsideTx(ctx context.Context) error {
	for h := heldIn(ctx); h != nil; h = h.outer {
		if h.inTx() {
			return errInsideTx
		}
	}
	return nil
}

var errInsideTx = invalidf("the methods of a Table have transactions of their own: inside Tx or Do, use Table.In(tx)")
