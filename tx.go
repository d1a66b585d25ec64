package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost-pg/fencepost/fence"
)

// TxFunc is work inside a guarded transaction. ctx ends with the caller's context and with each of the
// leases, and carries the first lease. tx is committed when the function returns nil and rolled back
// otherwise, also by a panic or runtime.Goexit; the function must not do either itself. It may be
// called more than once (see [Store.Tx]), so it must not keep state from one call to the next.
type TxFunc func(ctx context.Context, tx pgx.Tx) error

// txTries bounds how often a transaction is run again after 40001 or 40P01.
const txTries = 5

// Tx runs fn in a READ COMMITTED transaction that is guarded by the leases: PostgreSQL lets it commit
// only if none of them has been overtaken, and makes new claims wait until it has ended. nil means
// committed.
//
// After a serialization failure or a deadlock the whole of it runs again with the same tokens, fn
// included, a bounded number of times; then the error is returned with its SQLSTATE in the chain.
// fn's errors are returned as they are, with the cause where its context ended.
//
// Errors besides fn's: ErrInvalid (no lease, or one of another store); ErrLost without a round trip where
// a lease is over, and also where PostgreSQL ended a transaction that was idle for longer than
// MaxIdle; *StaleError; ErrUnavailable; ErrOutcomeUnknown where the reply to COMMIT was lost. ctx
// bounds all of it.
func (s *Store) Tx(ctx context.Context, fn TxFunc, leases ...*Lease) error {
	if fn == nil {
		return invalidf("a transaction without a function")
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
	return s.retry(ctx, sorted, func() error { return s.once(ctx, fn, sorted) })
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
		if err == nil || !fence.SafeToRetry(err) || try == txTries {
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

// once runs the transaction one time.
func (s *Store) once(ctx context.Context, fn TxFunc, leases []*Lease) (err error) {
	if err := over(leases); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return lostOr(leases, fmt.Errorf("%w: begin: %w", ErrUnavailable, err))
	}
	defer conn.Release()
	if err := over(leases); err != nil {
		return err
	}
	tx, err := s.enter(ctx, conn.Conn(), leases)
	if err != nil {
		return lostOr(leases, err)
	}
	defer rollback(ctx, tx) // without effect once committed
	if err := fn(ctx, tx); err != nil {
		return lostOr(leases, idleIsLost(leases, err))
	}
	if err := over(leases); err != nil {
		return err
	}
	return idleIsLost(leases, fence.CommitError(ctx, tx.Commit(ctx)))
}

// enter begins, and begins again where a guard failed only because another goroutine was lifting a lease.
func (s *Store) enter(ctx context.Context, conn *pgx.Conn, leases []*Lease) (pgx.Tx, error) {
	for {
		claims := make([]Claim, len(leases))
		for i, l := range leases {
			claims[i] = l.Claim()
		}
		tx, err := s.begin(ctx, conn, claims)
		if !errors.Is(err, ErrStale) {
			return tx, err
		}
		healed := false
		for i, l := range leases {
			healed = healed || s.settleLift(ctx, l, claims[i])
		}
		if !healed {
			return nil, err
		}
	}
}

// begin opens the transaction, bounds how long it may be idle, and guards it, all in one round trip.
func (s *Store) begin(ctx context.Context, conn *pgx.Conn, claims []Claim) (pgx.Tx, error) {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	// A holder stopped while it reads a result is not idle; the second setting ends that one.
	b.Queue(`SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('tcp_user_timeout', $1, true)`,
		strconv.FormatInt(s.opts.MaxIdle.Milliseconds(), 10))
	for _, c := range claims {
		fence.QueueGuard(&b, c)
	}
	results := conn.SendBatch(ctx, &b)
	tx := results.Tx()
	if err := results.Close(); err != nil {
		rollback(ctx, tx)
		return nil, fence.GuardError(ctx, err)
	}
	return tx, nil
}

// rollback frees the connection. It outlives ctx, within a bound of its own: a rollback on a dead
// context would close the connection instead.
func rollback(ctx context.Context, tx pgx.Tx) {
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
