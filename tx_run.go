package fencepost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgsession"
)

// txTries bounds how often a transaction is run again after 40001 or 40P01.
const txTries = 5

// retry runs a whole transaction, and again as long as that is known to be safe and may help.
func (s *Store) retry(ctx context.Context, about subject, run func() error) error {
	for try := 1; ; try++ {
		err := run()
		if errors.Is(err, pgsession.ErrStatementGone) {
			s.commitsSimply.Store(true)
			err = run()
		}
		if err == nil || !fence.SafeToRetry(err) || errors.Is(err, ErrOutcomeUnknown) || try == txTries {
			return s.outcome(ctx, about, err)
		}
		s.retried(ctx, about, try, err)
		pause := time.NewTimer(time.Duration(try) * time.Duration(2+rand.IntN(8)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return joined(err, over(about.leases), ctx.Err())
		}
	}
}

// txRun is one guarded transaction, from getting its connection to the outcome of its COMMIT.
type txRun struct {
	store  *Store
	leases []*Lease // in the order of their resources; the transaction is not committed once one of them is over
	opts   TxOptions
	open   opening      // begins the transaction instead of enter, if not nil
	folded *foldedClaim // which the transaction makes by itself; nil if the leases have been claimed
	fn     TxFunc
	one    [1]*Lease // space for one lease

	handed *guardedTx // the transaction that the last attempt passed to the function
	heals  healing    // of rows ahead of their fences
}

// opening begins a transaction, marks it, and enters its claims.
type opening func(ctx context.Context, conn *pgx.Conn, t *guardedTx) error

// healed runs the transaction. It runs it again after each lift of a fence to a row that was ahead of it.
func (r *txRun) healed(ctx context.Context) error {
	for {
		again, err := r.heals.afterTx(ctx, r, r.attempt(ctx))
		if !again {
			return err
		}
	}
}

// attempt runs the transaction once. If the reply to its COMMIT was lost, it finds out whether the transaction was
// committed. Before that it returns the connection to the pool, which may have no other.
func (r *txRun) attempt(ctx context.Context) error {
	lost, err := r.run(ctx)
	if lost != nil {
		return r.settle(ctx, *lost, err)
	}
	return err
}

// run runs the transaction once. It returns the mark of a transaction whose outcome only PostgreSQL knows.
func (r *txRun) run(ctx context.Context) (lost *pgcommit.Mark, err error) {
	conn, t, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { returnConn(conn, err) }()
	defer rollback(ctx, t.Tx) // no effect after a commit
	r.handed = t
	if err := r.call(ctx, t); err != nil {
		return nil, lostOr(r.leases, idleIsLost(r.leases, connectionIsUnavailable(ctx, t.Tx, err)))
	}
	if err := over(r.leases); err != nil {
		return nil, err
	}
	if r.store.commitsSimply.Load() {
		pgsession.CommitSimply(conn.Conn())
	}
	err = pgcommit.CommitMarked(ctx, t.Tx, t.mark)
	if errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, pgcommit.ErrBroken) {
		return &t.mark, err // after ErrBroken the mark would tell about the wrong half
	}
	if err == nil {
		return nil, nil
	}
	return nil, lostOr(r.leases, idleIsLost(r.leases, err))
}

// start begins the transaction on a connection of the pool.
func (r *txRun) start(ctx context.Context) (conn *pgxpool.Conn, t *guardedTx, err error) {
	switch {
	case r.folded != nil:
		return r.folded.start(ctx, r)
	case r.open != nil:
		return r.startWith(ctx, r.open)
	}
	return r.startWith(ctx, r.enter)
}

// startWith gets a connection and begins a transaction on it. It checks the deadline once it has the connection.
func (r *txRun) startWith(ctx context.Context, open opening) (conn *pgxpool.Conn, t *guardedTx, err error) {
	if err := over(r.leases); err != nil {
		return nil, nil, err
	}
	conn, err = r.store.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, lostOr(r.leases, fmt.Errorf("%w: begin: %w", ErrUnavailable, err))
	}
	if err := over(r.leases); err != nil {
		conn.Release()
		return nil, nil, err
	}
	t = newGuardedTx(r.leases)
	if err := open(ctx, conn.Conn(), t); err != nil {
		returnConn(conn, err)
		return nil, nil, lostOr(r.leases, err)
	}
	return conn, t, nil
}

// returnConn returns a connection to the pool, or destroys it if err shows that it cannot be used.
func returnConn(conn *pgxpool.Conn, err error) {
	fence.Discard(conn.Conn(), err)
	conn.Release()
}

// call runs the transaction's function.
func (r *txRun) call(ctx context.Context, t *guardedTx) error {
	leases := heldIn(ctx).leases
	if r.folded == nil {
		return call(ctx, r.fn, t, leases)
	}
	return call(ctx, func(ctx context.Context, tx pgx.Tx) error {
		r.folded.begun(ctx)
		return r.fn(ctx, tx)
	}, t, leases)
}

// call runs the function, under a context that records the transaction. If it returns nil, the transaction is still
// open and can be committed.
func call(ctx context.Context, fn TxFunc, handed *guardedTx, leases []*Lease) error {
	defer handed.returned.Store(true)
	handed.held = held{leases: leases, tx: handed}
	if err := fn(handed.held.in(ctx), handed); err != nil {
		err = protectionSays(ctx, err)
		if ended := handed.endedInSQL(); ended != nil {
			return joined(err, ended)
		}
		return err
	}
	return handed.check()
}

// settle finds out the outcome of a transaction whose COMMIT was not answered, and returns nil if it was committed. It
// does not end with ctx. It has a time limit of its own, and asks through another connection.
//
// Invariant: it never guesses. nil and ErrUnavailable (nothing was written) come from PostgreSQL itself, from the same
// incarnation of the same server. Otherwise the error stays ErrOutcomeUnknown.
func (r *txRun) settle(ctx context.Context, mark pgcommit.Mark, unknown error) (err error) {
	began, s := time.Now(), r.store
	defer func() { s.settled(ctx, r.leases, time.Since(began), err) }()
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.SettleFor)
	defer cancel()
	committed, asked := pgcommit.Settle(detached, s.pool, mark)
	switch {
	case asked != nil:
		s.opts.Logger.Warn("reply to COMMIT lost, outcome unknown", "resource", r.leases[0].resource, "error", asked)
		//nolint:errorlint // the end of this call's own patience is not the caller's
		return fmt.Errorf("%w (%v)", unknown, asked)
	case committed:
		s.opts.Logger.Info("reply to COMMIT lost, and the transaction committed", "resource", r.leases[0].resource)
		return nil
	}
	s.opts.Logger.Info("reply to COMMIT lost, and the transaction rolled back", "resource", r.leases[0].resource)
	rolledBack := fmt.Errorf("%w: rolled back, as PostgreSQL says: %w", ErrUnavailable, notWritten{unknown})
	return lostOr(r.leases, withEnd(ctx, rolledBack))
}

// rollback frees the connection. It does not end with ctx, and has a time limit of its own: a rollback on a context
// that has ended would close the connection instead.
func rollback(ctx context.Context, tx pgx.Tx) {
	if conn := tx.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() == 'I' {
		return // it has ended
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(detached) // an error closes the connection, which rolls back as well
}
