package fencepost

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Join is [Store.Do] for work that may be part of other work under the same lease. If ctx carries the lease of the
// resource, because Join is called inside a Do, Tx or Join that holds it, or under [Lease.Context], Join uses that
// lease instead of returning [ErrHeldByCaller]:
//
//   - Inside a transaction that the lease guards, fn runs in a savepoint of that transaction. If fn fails, its writes
//     are undone, and the caller decides whether the transaction goes on.
//   - Under the lease, but outside a transaction, fn runs in a transaction of its own, as in Tx. The lease is not
//     released.
//   - Otherwise Join is Do.
//
// nil means committed only if Join did not run in a savepoint. In a savepoint, nil means that the writes of fn are
// kept, and are committed or rolled back with the enclosing transaction. Work that must follow a commit, such as
// sending mail, belongs after the outermost call.
//
// Nothing is retried in a savepoint. Return the errors 40001 and 40P01, so that the enclosing transaction runs again.
// If a statement fails, PostgreSQL refuses to go on. If fn overlooks that error and returns nil, Join returns
// pgx.ErrTxCommitRollback, and the writes of fn are undone. fn gets the same kind of transaction as in Do. The rows and
// batch results of the enclosing transaction must be closed before the call; otherwise the error is ErrInvalid. Other
// errors are those of Do and Tx, and ErrLost if the lease is over. ctx bounds the call.
func (s *Store) Join(ctx context.Context, resource string, fn TxFunc) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	full, err := s.qualify(resource)
	if err != nil {
		return err
	}
	h, l, under := s.joinable(ctx, full)
	switch {
	case h != nil:
		return h.join(ctx, l, fn)
	case under != nil:
		return s.Tx(ctx, fn, under)
	}
	return s.Do(ctx, resource, fn)
}

// joinable returns the innermost transaction in ctx that a lease of the resource guards, with that lease. If there is
// no such transaction, under is the innermost held lease of the resource. Results that do not exist are nil.
func (s *Store) joinable(ctx context.Context, full string) (inTx *held, l, under *Lease) {
	for h := heldIn(ctx); h != nil; h = h.outer {
		l := h.find(s, full)
		switch {
		case l == nil || l.store != s: // Do refuses another store's lease
		case h.inTx():
			return h, l, nil
		case under == nil && l.Err() == nil:
			under = l
		}
	}
	return nil, nil, under
}

// join runs the function in a savepoint of the transaction. The transaction keeps its guard, which is outside the
// savepoint.
func (h *held) join(ctx context.Context, l *Lease, fn TxFunc) error {
	if err := l.Err(); err != nil {
		return err
	}
	if h.tx.Conn().PgConn().IsBusy() {
		return invalidf("rows or batch results of the enclosing transaction are open: close them before Join")
	}
	ctx, stop := l.bound(ctx)
	defer stop()
	savepoint, err := h.tx.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a savepoint: %w", err)
	}
	kept := false
	defer func() { // also after a panic
		if !kept {
			rollback(ctx, savepoint)
		}
	}()
	first := append([]*Lease{l}, h.leases...) // FromContext is for the resource that fn works on
	handed := newGuardedTx(h.tx.leases)
	handed.Tx, handed.claims, handed.within = savepoint, h.tx.claims, h.tx
	if err := call(ctx, fn, handed, first); err != nil {
		return lostOr(first, err)
	}
	if savepoint.Conn().PgConn().TxStatus() == 'E' {
		return fmt.Errorf("fencepost: rolled back: a statement failed, the function returned nil, "+
			"and nothing that it wrote is kept: %w", pgx.ErrTxCommitRollback)
	}
	if err := savepoint.Commit(ctx); err != nil {
		return fmt.Errorf("end the savepoint: %w", err)
	}
	kept = true
	return nil
}
