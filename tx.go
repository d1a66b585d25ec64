package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/fence"
)

// TxFunc is work inside a guarded transaction. ctx ends with the caller's context and with each of the
// leases, and carries the first lease. tx is committed when the function returns nil and rolled back
// otherwise, also by a panic or runtime.Goexit. The function must not do either itself: tx's own Commit and
// Rollback return ErrInvalid, and so does the whole then, as it does where the function returns nil and has left
// rows, batch results or a transaction of tx.Begin open. It may be called more than once (see
// [Store.Tx]), so it must not keep state from one call to the next.
//
// The methods of a [Table] have transactions of their own and are refused with ErrInvalid under ctx: what they wrote
// would stay when this one is rolled back, and they would wait for the rows that this one holds.
//
// tx.Begin makes a savepoint. Rolling that back takes back what was written since, and leaves the guard, which
// stands above it. A guard that the function itself enters for a further resource (fence.Guard,
// fencepost.enter) has to stand outside of savepoints: rolled back, it protects nothing.
type TxFunc func(ctx context.Context, tx pgx.Tx) error

// txTries bounds how often a transaction is run again after 40001 or 40P01.
const txTries = 5

// Tx runs fn in a READ COMMITTED transaction that is guarded by the leases: PostgreSQL lets it commit
// only if none of them has been overtaken, and makes new claims wait until it has ended. nil means
// committed. Several leases are guarded in the order of their resources, whatever order they are named in.
//
// After a serialization failure or a deadlock, at COMMIT too, the whole of it runs again with the same tokens,
// fn included, a bounded number of times; then the error is returned with its SQLSTATE in the chain.
// fn's errors are returned as they are, with the cause where its context ended. An error that fn overlooks, and
// after which PostgreSQL rolls back, is pgx.ErrTxCommitRollback.
//
// Where the reply to COMMIT is lost, PostgreSQL is asked through another connection, for up to SettleFor: the
// answer is nil for committed, ErrUnavailable for rolled back (nothing was written; the whole may be run again),
// and ErrOutcomeUnknown for what cannot be known, a crash in between for instance. See also [Once].
//
// Errors besides these: ErrInvalid (no lease, or one of another store); ErrLost without a round trip where
// a lease is over, and also where PostgreSQL ended a transaction that was idle for longer than
// MaxIdle; *StaleError; ErrUnavailable. ctx bounds all of it but the settling.
func (s *Store) Tx(ctx context.Context, fn TxFunc, leases ...*Lease) error {
	return s.TxWith(ctx, nil, fn, leases...)
}

// TxWith is Tx with options. Further errors: ErrInvalid for options out of range.
func (s *Store) TxWith(ctx context.Context, opts *TxOptions, fn TxFunc, leases ...*Lease) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	if s.inOne != nil {
		return errInOne
	}
	o, err := s.txOptions(opts)
	if err != nil {
		return err
	}
	sorted, err := s.sorted(leases)
	if err != nil {
		return err
	}
	ctx = context.WithValue(ctx, leaseKey{}, leases[0])
	for _, l := range sorted {
		bounded, stop := l.bound(ctx)
		defer stop()
		ctx = bounded
	}
	open := func(ctx context.Context, conn *pgx.Conn) (pgx.Tx, fence.Mark, error) {
		return s.enter(ctx, conn, o, sorted)
	}
	return s.retry(ctx, sorted, func() error { return s.attempt(ctx, open, fn, sorted) })
}

// sorted puts leases into the order in which they are guarded, the same for everybody, so that
// transactions over several resources do not deadlock. A lease named twice counts once.
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

// retry runs a whole transaction again for as long as that is known to be safe and may help.
func (s *Store) retry(ctx context.Context, leases []*Lease, run func() error) error {
	for try := 1; ; try++ {
		err := run()
		if err == nil || !fence.SafeToRetry(err) || errors.Is(err, ErrOutcomeUnknown) || try == txTries {
			return s.outcome(err)
		}
		pause := time.NewTimer(time.Duration(try) * time.Duration(2+rand.IntN(8)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, over(leases), ctx.Err())
		}
	}
}

// outcome reports what is worth an event, once per call.
func (s *Store) outcome(err error) error {
	var stale *StaleError
	if !errors.As(err, &stale) {
		return err
	}
	// The fence knows resources by their full names; the rest of this package does not.
	stale.Resource = strings.TrimPrefix(stale.Resource, s.opts.Namespace+":")
	if s.opts.Events.Stale != nil {
		s.opts.Events.Stale(stale)
	}
	return err
}

// over returns why one of the leases is over, or nil. Nothing is sent past a deadline.
func over(leases []*Lease) error {
	for _, l := range leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// rollback frees the connection. It outlives ctx, within a bound of its own: a rollback on a dead
// context would close the connection instead.
func rollback(ctx context.Context, tx pgx.Tx) {
	if conn := tx.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() == 'I' {
		return // it has ended
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(detached) // an error closes the connection, which rolls back as well
}

// lostOr puts the loss of a lease before an error that may be its consequence.
func lostOr(leases []*Lease, err error) error {
	// Whether it was written is the one thing that the loss does not tell.
	if errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	if lost := over(leases); lost != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

// idleIsLost says of a transaction that PostgreSQL ended, because its holder had been stopped, that the
// lease is lost: by then it may have been overtaken.
func idleIsLost(leases []*Lease, err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != codeIdleInTransaction {
		return err
	}
	return &LostError{Resource: leases[0].resource, Token: leases[0].Token(), Reason: ReasonIdle, Err: server}
}

// Do acquires the lease of a resource, runs fn in a transaction guarded by it, and releases it once fn
// has returned, also by a panic or runtime.Goexit. nil means committed, even where the release could
// not be carried out: that is logged, and the lease then ends with its TTL.
//
// Errors are those of Acquire and Tx; where the work failed and the release did as well, both can be
// seen with errors.Is, except beside ErrOutcomeUnknown, which stands alone. ctx bounds acquiring and the transaction, and not the release.
func (s *Store) Do(ctx context.Context, resource string, fn TxFunc) (err error) {
	if s.inOne != nil {
		return s.inOne.do(ctx, resource, fn)
	}
	l, err := s.Acquire(ctx, resource, nil)
	if err != nil {
		return err
	}
	defer func() {
		released := l.Release(ctx)
		switch {
		case released == nil:
		case err != nil && !errors.Is(err, ErrOutcomeUnknown):
			err = errors.Join(err, released)
		default:
			s.opts.Logger.Warn("lease not released after its work", "resource", resource, "error", released)
		}
	}()
	return s.Tx(ctx, fn, l)
}
