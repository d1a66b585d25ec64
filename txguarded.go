package fencepost

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// guardedTx is what a TxFunc gets: a transaction that it can do anything with but end.
//
// Invariant: the guard stands at the transaction's top level. Savepoints, which Begin makes, come and go below it.
type guardedTx struct {
	pgx.Tx
	called string // Commit or Rollback, whichever the function called first
}

// Commit refuses. The function's nil commits.
func (t *guardedTx) Commit(context.Context) error { return t.refuse("Commit") }

// Rollback refuses. The function's error rolls back.
func (t *guardedTx) Rollback(context.Context) error { return t.refuse("Rollback") }

func (t *guardedTx) refuse(method string) error {
	if t.called == "" {
		t.called = method
	}
	return t.misuse()
}

func (t *guardedTx) misuse() error {
	return invalidf("the function called %s: a guarded transaction is committed by returning nil and rolled back by returning an error", t.called)
}

// check tells whether the transaction can still be committed as the function's nil asks. A refused call counts
// also where the function overlooked the refusal: what it meant is not what its nil says.
func (t *guardedTx) check() error {
	if t.called != "" {
		return t.misuse()
	}
	return t.endedInSQL()
}

// endedInSQL is an error where the function has sent COMMIT or ROLLBACK as SQL. What it wrote before that was
// guarded and may be committed; what it wrote afterwards was not guarded.
func (t *guardedTx) endedInSQL() error {
	conn := t.Conn()
	if conn.IsClosed() || conn.PgConn().TxStatus() != 'I' {
		return nil
	}
	return fmt.Errorf("%w: the function ended its transaction by itself, and wrote unguarded from then on", ErrOutcomeUnknown)
}

// insideTx is the key under which a TxFunc's context carries that it is one.
type insideTx struct{}

// outsideTx refuses a call that has a transaction of its own inside the function of another, whose rows it would wait
// for, and whose end would not be its own.
func outsideTx(ctx context.Context) error {
	if ctx.Value(insideTx{}) == nil {
		return nil
	}
	return invalidf("the methods of a Table have transactions of their own: inside Tx or Do, write through its tx")
}
