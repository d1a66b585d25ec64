package fencepost

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
)

// claimAndWrite claims the leases in the transaction that writes, as Do does. If that cannot claim all of them without
// waiting, they are claimed first.
func (im *importing[T]) claimAndWrite(ctx context.Context, fn TxFunc, b *importBatch) error {
	s := im.table.store
	o, err := s.txOptions(nil)
	if err != nil {
		return err
	}
	ctx, stop := s.boundByLoss(ctx, b.leases)
	defer stop()
	var took time.Duration // of the claims
	claimed := false       // by some attempt, which may have been rolled back
	r := &txRun{store: s, leases: b.leases, opts: o}
	r.fn = func(ctx context.Context, tx pgx.Tx) error {
		claimed = true
		for _, l := range b.leases { // as Do does: before the work, which is not part of the wait
			s.claimWait(ctx, l, l.Token(), took)()
		}
		s.acquiredAll(ctx, b.leases, b.began)
		return fn(ctx, tx)
	}
	r.open = func(ctx context.Context, conn *pgx.Conn, t *guardedTx) error {
		began := time.Now()
		err := r.openClaiming(ctx, conn, t, im.enters)
		took = time.Since(began)
		return err
	}
	held := holding(ctx, b.leases...)
	err = s.transact(held, subject{leases: b.leases}, func() error {
		err := r.attempt(held)
		if refused := (*NotEnteredError)(nil); !im.enters && errors.As(err, &refused) {
			im.enters = true // the table has been protected since it was declared
			err = r.attempt(held)
		}
		return err
	})
	switch {
	case errors.Is(err, errNotAllClaimed):
	case err != nil && !claimed:
		s.refusedAcquire(ctx, b.leases[0].resource, time.Since(b.began), err)
		return err
	default:
		return err
	}
	if err := s.claimAll(ctx, b.leases, im.acquire, b.began); err != nil {
		return lostOr(b.leases, err)
	}
	return s.Tx(ctx, fn, b.leases...)
}

var errNotAllClaimed = errors.New("a claim was refused, or would have had to wait")

// openClaiming begins a transaction that claims the tokens of its leases, all in one round trip. The claims and the
// writes are committed together; until then each fence is locked, so the transaction needs no guard. With enter it
// tells the triggers of a protected table about its claims. If one of them was not made, nothing is, and the error is
// errNotAllClaimed.
func (r *txRun) openClaiming(ctx context.Context, conn *pgx.Conn, t *guardedTx, enter bool) error {
	claims, ok := grantedClaims(r.leases)
	if !ok {
		return errNotAllClaimed
	}
	var answers func() ([]pgclaim.Raised, error)
	err := r.store.beginMarked(ctx, conn, t, func(mark *pgcommit.Mark) (pgx.Tx, error) {
		var b pgx.Batch
		b.BeginTx(pgx.TxOptions{IsoLevel: r.opts.Isolation})
		boundIdle(&b, r.opts.MaxIdle)
		pgcommit.QueueMark(&b, mark)
		answers = pgclaim.QueueRaiseAll(&b, claims, r.leases[0].hold.Label())
		if enter {
			pgclaim.QueueEnterAll(&b, claims)
		}
		return sendBegin(ctx, conn, &b, "claim")
	})
	if errors.Is(err, ErrStale) {
		return errNotAllClaimed // not entered, because it was not claimed
	}
	if err != nil {
		return err
	}
	raised, err := answers()
	if err == nil && slices.ContainsFunc(raised, func(r pgclaim.Raised) bool { return !r.Claimed }) {
		err = errNotAllClaimed
	}
	if err != nil {
		rollback(ctx, t.Tx)
		return err
	}
	t.claims = claims
	for i, l := range r.leases {
		l.setClaim(claims[i])
	}
	return nil
}
