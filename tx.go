package fencepost

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

// TxFunc is work inside a guarded transaction. ctx ends with the caller's context and with each of the leases, and
// carries the first lease (see [FromContext]). If the function returns nil, tx is committed. Otherwise tx is rolled
// back, even if the function panics or calls runtime.Goexit. The function must not commit or roll back by itself:
// tx.Commit and tx.Rollback return ErrInvalid, and then the whole call does too. The call also returns ErrInvalid if
// the function returns nil and leaves rows, batch results or a transaction of tx.Begin open. Once the function has
// returned, tx and its savepoints are closed (pgx.ErrTxClosed). The function may be called more than once (see
// [Store.Tx]), so it must not keep state from one call to the next.
//
// Under ctx, Do, Acquire and similar calls for a lease that is already held return ErrHeldByCaller, because they would
// wait for this function. Use [Store.Join] to run work in a savepoint of tx instead.
//
// The methods of a [Table] have transactions of their own, and return ErrInvalid under ctx. Their writes would remain
// if this transaction is rolled back, and they would wait for rows that this transaction has locked. Use [Table.In] for
// the same methods inside tx.
//
// tx.Begin makes a savepoint. Rolling it back undoes what was written since, and keeps the guard, which is outside the
// savepoint. If the function itself enters a guard for another resource (fence.Enter, fencepost.enter), it must do so
// outside savepoints, because a guard that is rolled back protects nothing.
type TxFunc func(ctx context.Context, tx pgx.Tx) error

// Tx runs fn in a READ COMMITTED transaction that is guarded by the leases: PostgreSQL lets it commit only if none of
// them has been overtaken, and makes new claims wait until it has ended. nil means committed. Several leases are
// guarded in the order of their resources, in whatever order they are passed.
//
// After a serialization failure or a deadlock, even at COMMIT, the whole transaction runs again with the same tokens,
// including fn, a bounded number of times. After that the error is returned with its SQLSTATE in the chain. After an
// error of a row ahead of its fence (see [TableTx]), the fence is lifted to the row, and the transaction runs again as
// well. fn's errors are returned as they are, together with the cause if its context ended. If a statement fails, and
// fn overlooks that and returns nil, PostgreSQL rolls back: the error matches pgx.ErrTxCommitRollback, and nothing was
// written.
//
// If the reply to COMMIT is lost, Tx asks PostgreSQL through another connection, for up to SettleFor. It returns nil if
// the transaction was committed, and ErrUnavailable if it was rolled back; then nothing was written, and the call may
// be repeated. It returns ErrOutcomeUnknown if the outcome cannot be determined, after a crash in between for instance.
// See also [Once].
//
// Other errors are ErrInvalid (no lease, or a lease of another store); ErrHeldByCaller if ctx shows that an outer call
// has a transaction open under one of the leases (see [Store.Join]); ErrLost, without a round trip, if a lease is over,
// and also if PostgreSQL ended a transaction that was idle for longer than MaxIdle; *StaleError; and ErrUnavailable.
// ctx bounds the whole call except settling the outcome.
func (s *Store) Tx(ctx context.Context, fn TxFunc, leases ...*Lease) error {
	return s.TxWith(ctx, nil, fn, leases...)
}

// TxWith is Tx with options. It also returns ErrInvalid for options out of range.
func (s *Store) TxWith(ctx context.Context, opts *TxOptions, fn TxFunc, leases ...*Lease) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	o, err := s.txOptions(opts)
	if err != nil {
		return err
	}
	sorted, err := s.sorted(leases)
	if err != nil {
		return err
	}
	if err := s.checkNested(ctx, sorted); err != nil {
		return err
	}
	ctx = holding(ctx, leases...)
	ctx, add, stop := boundByAll(ctx)
	defer stop()
	for _, l := range sorted {
		add(l)
	}
	r := &txRun{store: s, leases: sorted, opts: o, fn: fn, heals: healing{store: s, lifts: txLifts}}
	return s.transact(ctx, subject{leases: sorted}, func() error { return r.healed(ctx) })
}

// sorted returns leases in the order in which they are guarded. The order is the same for every caller, so that
// transactions over several resources do not deadlock. A lease that is passed twice counts once.
func (s *Store) sorted(leases []*Lease) ([]*Lease, error) {
	if len(leases) == 0 {
		return nil, invalidf("a transaction without a lease is not guarded")
	}
	for _, l := range leases {
		if l == nil || l.store != s {
			return nil, invalidf("a lease is nil or of another store")
		}
	}
	sorted := slices.Clone(leases)
	slices.SortFunc(sorted, func(a, b *Lease) int { return cmp.Compare(a.full, b.full) })
	return slices.Compact(sorted), nil
}
