package fencepost

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// guardedTx is what a TxFunc gets: a transaction that it can do anything with but end.
//
// Invariant: the guard stands at the transaction's top level. Savepoints, which Begin makes, come and go below it.
type guardedTx struct {
	pgx.Tx
	called string       // Commit or Rollback, whichever the function called first
	open   []*savepoint // begun and not ended, the innermost last
}

// savepoint is what a function gets from Begin.
type savepoint struct {
	pgx.Tx
	of *guardedTx
}

// Begin makes a savepoint, which the function has to end before it returns nil.
func (t *guardedTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.begin(ctx, t.Tx) }

func (t *guardedTx) begin(ctx context.Context, within pgx.Tx) (pgx.Tx, error) {
	tx, err := within.Begin(ctx)
	if err != nil {
		return nil, err
	}
	s := &savepoint{Tx: tx, of: t}
	t.open = append(t.open, s)
	return s, nil
}

// Begin makes a savepoint within this one.
func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) { return s.of.begin(ctx, s.Tx) }

// Commit keeps what was written since. Savepoints within this one that are still open stay so: nobody has said what
// is to become of them.
func (s *savepoint) Commit(ctx context.Context) error {
	err := s.Tx.Commit(ctx)
	if err == nil {
		s.of.open = slices.DeleteFunc(s.of.open, func(o *savepoint) bool { return o == s })
	}
	return err
}

// Rollback undoes what was written since, also within savepoints that are still open. One that was never sent, because
// its context had ended, has undone nothing: the savepoint is still open then.
func (s *savepoint) Rollback(ctx context.Context) error {
	err := s.Tx.Rollback(ctx)
	if i := slices.Index(s.of.open, s); i >= 0 && err == nil {
		s.of.open = s.of.open[:i]
	}
	return err
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
	if err := t.endedInSQL(); err != nil {
		return err
	}
	return t.leftOpen()
}

// leftOpen is an error where the function has left something open. Of a result that nobody has read it is not known
// whether it was an error, and of an open savepoint not whether it was to be kept.
func (t *guardedTx) leftOpen() error {
	conn := t.Conn()
	switch {
	case conn.IsClosed():
		return nil
	case conn.PgConn().IsBusy():
		return invalidf("the function left rows or batch results open: close them, and look at their error, before returning nil")
	case len(t.open) > 0 && conn.PgConn().TxStatus() == 'T': // a failed one is rolled back anyway, and that is its error
		return invalidf("the function left a transaction of tx.Begin open: commit it or roll it back before returning nil")
	}
	return nil
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
