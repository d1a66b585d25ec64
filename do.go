package fencepost

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
)

// Do acquires the lease of a resource, runs fn in a transaction guarded by it, and releases the lease afterwards, even
// if fn panics or calls runtime.Goexit. nil means committed, even if the release failed. A failed release is logged,
// and the lease then ends with its TTL.
//
// # The claim is part of the transaction
//
// The transaction's first statement claims the token, so that one COMMIT makes the claim and the writes of fn visible
// together. Whatever fn reads, it reads after the claim. It follows that:
//   - Until the COMMIT, the fence carries the token for this transaction alone. fn must not wait for a write under the
//     lease in another transaction, because that write waits for this one. Tx, Once and the methods of a [Table] return
//     ErrHeldByCaller for the lease. A process that fn has given the lease's Claim is refused as stale, at once or
//     after it has waited, even if the transaction then commits. For such work use [Store.With].
//   - Guarded writes of an earlier holder wait until the transaction ends, and so does the next holder's claim if the
//     lease is lost in the meantime. MaxIdle bounds the wait if this process has stopped.
//   - After a rollback the token has not been claimed. A token that fn has passed on counts only if Do returns nil.
//
// Leases on advisory locks ([NewAdvisory]) are claimed before the transaction.
//
// If ctx shows that the caller already holds the lease, because Do is called inside a Do or a Tx, or under
// [Lease.Context], Do returns ErrHeldByCaller at once. See [Store.Join].
//
// Other errors are those of Acquire and Tx, and ErrInvalid for a nil fn, before anything is sent. If the work fails and
// the release fails as well, errors.Is finds both errors. ErrOutcomeUnknown is returned without the error of the
// release. ctx bounds acquiring and the transaction, but not the release.
func (s *Store) Do(ctx context.Context, resource string, fn TxFunc) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	full, err := s.qualify(resource)
	if err != nil {
		return err
	}
	if err := s.checkHeld(ctx, resource, full); err != nil {
		return err
	}
	return s.do(ctx, resource, full, nil, fn)
}

// do is Do with options for the transaction, for a resource that has been checked.
func (s *Store) do(ctx context.Context, resource, full string, opts *TxOptions, fn TxFunc) (err error) {
	began := time.Now()
	l, g, err := s.take(ctx, resource, full, nil, s.locker.acquire)
	if err != nil {
		s.refusedAcquire(ctx, resource, time.Since(began), err)
		return err
	}
	f := &foldedClaim{lease: l, began: began}
	defer func() {
		if f.claimed {
			err = s.releaseAfterTx(ctx, l, err)
			return
		}
		s.releaseUnclaimed(ctx, l)
		s.refusedAcquire(ctx, resource, time.Since(began), err)
	}()
	if _, folds := g.(redisGrant); !folds {
		if err := s.claim(ctx, l, g, claimTerms{}); err != nil {
			return err
		}
		f.claimed = true
		f.tellAcquired(ctx)
		return s.TxWith(ctx, opts, fn, l)
	}
	return f.do(ctx, opts, fn)
}

// foldedClaim is a claim that is made by the transaction that it guards.
//
// Invariant: the claim and the transaction's writes commit together or not at all. After a rollback the fence is as it
// was, unless a lift to a row was committed in between; so a repeated transaction makes the claim again, and a claim
// that was lifted recognises itself.
type foldedClaim struct {
	lease   *Lease
	began   time.Time // when Do began
	held    held      // in the context of the transaction
	claimed bool      // by some attempt, which may have been rolled back
	tell    func()    // reports the claim of the current attempt

	// Of the current attempt.
	run  *txRun
	conn *pgxpool.Conn
	tx   *guardedTx
}

// do runs the transaction.
func (f *foldedClaim) do(ctx context.Context, opts *TxOptions, fn TxFunc) error {
	l, s := f.lease, f.lease.store
	o, err := s.txOptions(opts)
	if err != nil {
		return err
	}
	r := &txRun{store: s, one: [1]*Lease{l}, opts: o, folded: f, fn: fn, heals: healing{store: s, lifts: txLifts}}
	r.leases = r.one[:]
	f.held.leases = r.leases
	ctx, stop := l.bound(f.held.in(ctx))
	defer stop()
	l.inDo.Store(true) // between two attempts as well: the claim has been rolled back by then
	defer l.inDo.Store(false)
	return s.transact(ctx, subject{leases: r.leases}, func() error { return r.healed(ctx) })
}

// start begins the transaction with the claim. It begins again as redisGrant.claim does.
func (f *foldedClaim) start(ctx context.Context, r *txRun) (conn *pgxpool.Conn, t *guardedTx, err error) {
	if err := over(r.leases); err != nil {
		return nil, nil, err
	}
	f.run, f.conn, f.tx = r, nil, nil
	if err := f.lease.grant.claim(ctx, f.lease, claimTerms{raise: f.raise}); err != nil {
		if f.conn != nil { // the lease ended during the claim
			rollback(ctx, f.tx.Tx)
			returnConn(f.conn, nil)
		}
		return nil, nil, &toldError{err} // as the end of an acquire, and not as a refused write
	}
	f.claimed = true
	return f.conn, f.tx, nil
}

// raise makes a claim by the transaction that it begins.
func (f *foldedClaim) raise(ctx context.Context, l *Lease, c Claim, _ time.Time) (tell func(), err error) {
	began, r := time.Now(), f.run
	f.conn, f.tx, err = r.startWith(ctx, func(ctx context.Context, conn *pgx.Conn, t *guardedTx) error {
		return f.open(ctx, conn, t, c, r.opts)
	})
	tell = r.store.claimWait(ctx, l, c.Token, time.Since(began))
	if err != nil {
		return tell, err
	}
	f.tell = tell
	return tellNothing, nil
}

// begun reports what the transaction's function must not come before.
func (f *foldedClaim) begun(ctx context.Context) {
	f.tell()
	f.tellAcquired(ctx)
}

// checkClaimed refuses a call under a lease in another transaction than the one of Do that makes its claim. The call
// would wait for that transaction, which its caller may never end, or be refused as stale between two attempts.
func (l *Lease) checkClaimed() error {
	if l.inDo.Load() {
		return fmt.Errorf("%w: the transaction of Do that claims the lease of %q is open: use its tx, or Store.With",
			ErrHeldByCaller, l.resource)
	}
	return nil
}

// tellAcquired reports the lease, once.
func (f *foldedClaim) tellAcquired(ctx context.Context) {
	if f.lease.heldFor.begin() {
		f.lease.store.acquired(ctx, f.lease, time.Since(f.began))
	}
}

// open opens a transaction that makes the claim, all in one round trip.
func (f *foldedClaim) open(ctx context.Context, conn *pgx.Conn, t *guardedTx, c Claim, opts TxOptions) error {
	o := &pgclaim.RaiseOptions{Label: f.lease.hold.Label()}
	err := pgclaim.RaiseWithin(ctx, c, o, func(w *pgclaim.Within) error {
		if opts.first != nil {
			w.Wait() // opts.first may wait as well, and must not do so without the claim
		}
		return f.lease.store.beginMarked(ctx, conn, t, func(mark *pgcommit.Mark) (pgx.Tx, error) {
			tx, err := f.begin(ctx, conn, w, opts)
			if err != nil {
				return nil, err
			}
			if mark.XID, mark.Incarnation, err = w.Answer(); err != nil {
				rollback(ctx, tx)
			}
			return tx, err
		})
	})
	t.claims = append(t.first[:0], c)
	return err
}

// begin begins the transaction, in one round trip. Its claim may not have been made.
func (f *foldedClaim) begin(ctx context.Context, conn *pgx.Conn, w *pgclaim.Within, opts TxOptions) (pgx.Tx, error) {
	tx, err := beginDirect(ctx, conn, f.lease.full, func() (pgx.Tx, error) { return w.Begin(ctx, conn, opts.MaxIdle) })
	if tx != nil || err != nil {
		return tx, err
	}
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	w.Queue(ctx, &b, opts.MaxIdle)
	if opts.first != nil {
		opts.first(&b)
	}
	return sendBegin(ctx, conn, &b, f.lease.full)
}
