package fencepost

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// NewAdvisoryTx makes a Store without Redis that has [Store.Do] alone. Do takes a transaction-level advisory lock, draws the
// token, runs the function and commits, all in one READ COMMITTED transaction on one connection: whoever loses the lock loses the
// write with it. It works behind PgBouncer in transaction mode.
//
// The lease is that transaction. The function finds it in its context (see [FromContext]), and its claim, to stamp rows with; it is
// over when the function has returned. After a rollback its token is drawn again, so a token counts only once Do has
// returned nil. A transaction that is run again, after 40001 or 40P01, is another lease.
//
// ErrInvalid: Acquire, TryAcquire, AcquireAll, Tx, TxWith, Once, NewTable, which need a lease of its own; Release of the
// lease; Do inside a Do of the same resource, however deep; a label that is not text. Of the options TTL counts for MaxIdle alone, and RenewEvery and CounterIdle are
// of no use.
//
// Who waits for a resource holds a connection, but of one process only one does: the others wait for it in the process,
// first come, first served. When ctx ends meanwhile, the error is its cause, and ErrHeld where what this process met last was
// somebody who has the lock; ErrUnavailable otherwise.
func NewAdvisoryTx(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	v, err := checked(pool, opts)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(v.Label) || strings.ContainsRune(v.Label, 0) {
		return nil, invalidf("the label is not UTF-8 without U+0000")
	}
	s := &Store{pool: pool, locker: noLocker{}, opts: v}
	s.inOne = &inOne{store: s}
	return s, nil
}

// errInOne refuses what needs a lease of its own.
var errInOne = invalidf("the leases of this store are transactions: it has Do alone")

// noLocker is the locker of a store whose leases cannot be held.
type noLocker struct{}

func (noLocker) acquire(context.Context, string, time.Duration, *lease.AcquireOptions) (hold, error) {
	return nil, errInOne
}

func (noLocker) tryAcquire(context.Context, string, time.Duration, *lease.AcquireOptions) (hold, error) {
	return nil, errInOne
}

// inOne does lock, draw, work and commit in one transaction.
type inOne struct {
	store *Store
	turns advisory.Turns
}

func (o *inOne) do(ctx context.Context, resource string, fn TxFunc) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	full, err := o.store.qualify(resource)
	if err != nil {
		return err
	}
	w := &workInOne{resource: resource, full: full, key: advisory.Key(o.store.opts.Namespace, resource), fn: fn}
	if within(ctx, o.store.pool, w.key) {
		return invalidf("Do inside a Do of %q would wait for itself", resource)
	}
	if w.turn, err = o.turns.Take(ctx, w.key); err != nil {
		return err
	}
	defer w.turn.Done()
	err = o.store.retry(ctx, nil, func() error { return o.attempt(ctx, w) })
	if met := w.turn.Last(); w.cut && errors.Is(met, ErrHeld) {
		return errors.Join(met, ctx.Err())
	}
	return err
}

// doing is one Do whose function has the context, and those that it runs in.
type doing struct {
	pool  *pgxpool.Pool
	key   int64
	lease *Lease
	outer *doing
}

type doingKey struct{}

// within reports whether a Do of the same lock is under way further out, by whatever store: it would have to end first.
func within(ctx context.Context, pool *pgxpool.Pool, key int64) bool {
	d, _ := ctx.Value(doingKey{}).(*doing)
	for ; d != nil; d = d.outer {
		if d.pool == pool && d.key == key && d.lease.Err() == nil {
			return true
		}
	}
	return false
}

// workInOne is what one Do is to do, and how far it has come.
type workInOne struct {
	resource, full string
	key            int64
	fn             TxFunc

	turn    *advisory.Turn // knows what was met last
	entered bool           // the lock was had, once at least
	cut     bool           // ctx ended the wait for it in PostgreSQL, which had not said more
}

// attempt runs one transaction, under a lease of its own.
func (o *inOne) attempt(ctx context.Context, w *workInOne) error {
	d := &doing{pool: o.store.pool, key: w.key}
	d.outer, _ = ctx.Value(doingKey{}).(*doing)
	ctx = context.WithValue(ctx, doingKey{}, d) // the lease's context has it too
	h := newTxHold(ctx, o.store.opts.Label)
	l := newLease(o.store, w.resource, w.full, h)
	d.lease = l
	defer h.end(l)
	bounded, stop := l.bound(context.WithValue(ctx, leaseKey{}, l))
	defer stop()
	open := func(ctx context.Context, conn *pgx.Conn) (pgx.Tx, fence.Mark, error) { return o.open(ctx, conn, l, w) }
	return o.store.attempt(bounded, open, w.fn, []*Lease{l})
}

// open locks and draws, and asks again where only the server's own bound ended the wait.
func (o *inOne) open(ctx context.Context, conn *pgx.Conn, l *Lease, w *workInOne) (pgx.Tx, fence.Mark, error) {
	began := time.Now()
	for {
		tx, mark, err := o.store.beginMarked(ctx, conn, func(ctx context.Context, conn *pgx.Conn) (pgx.Tx, fence.Mark, error) {
			return o.begin(ctx, conn, l, w.key)
		})
		switch {
		case err == nil:
			w.entered = true
			w.turn.Met(&HeldError{Resource: w.resource, Label: o.store.opts.Label}) // by us, for the others here
			o.store.acquired(l, time.Since(began))
			return tx, mark, nil
		case timedOut(err):
			w.turn.Met(&HeldError{Resource: w.resource})
		case ctx.Err() == nil:
			err = notDrawn(ctx, err)
			w.turn.Met(err)
			return nil, mark, err
		}
		if ctx.Err() != nil {
			w.cut = !w.entered && (timedOut(err) || errors.Is(err, ctx.Err()))
			return nil, mark, notDrawn(ctx, err)
		}
	}
}

func timedOut(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == codeQueryCanceled
}

// codeQueryCanceled is what PostgreSQL says of a statement that took longer than its statement_timeout.
const codeQueryCanceled = "57014"

// The wait is bounded by the server as well, since PostgreSQL does not notice a client that has gone while it waits, and the
// function's own statements have the session's bounds again.
const (
	boundWaitSQL = `
SELECT set_config('fencepost.statement_timeout', current_setting('statement_timeout'), true), set_config('statement_timeout', $1, true),
       set_config('fencepost.lock_timeout', current_setting('lock_timeout'), true), set_config('lock_timeout', '0', true)`
	unboundWaitSQL = `
SELECT set_config('statement_timeout', current_setting('fencepost.statement_timeout'), true),
       set_config('lock_timeout', current_setting('fencepost.lock_timeout'), true)`
)

// begin opens the transaction, all in one round trip.
func (o *inOne) begin(ctx context.Context, conn *pgx.Conn, l *Lease, key int64) (pgx.Tx, fence.Mark, error) {
	var b pgx.Batch
	// READ COMMITTED, so that what the function reads is what there is once the lock is had.
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	boundIdle(&b, o.store.opts.MaxIdle)
	b.Queue(boundWaitSQL, strconv.FormatInt(waitOnServer(ctx).Milliseconds(), 10))
	b.Queue(`SELECT pg_advisory_xact_lock($1::bigint)`, key)
	mark := fence.QueueMark(&b)
	c, err := fence.QueueDraw(&b, l.full, l.hold.Nonce(), &fence.RaiseOptions{Label: l.hold.Label()})
	if err != nil {
		return nil, fence.Mark{}, err
	}
	b.Queue(unboundWaitSQL)
	tx, err := sendBegin(ctx, conn, &b)
	if err == nil {
		l.setClaim(*c)
	}
	return tx, *mark, err
}

// waitOnServer is how long one wait may take there: a little less than the caller has, so that PostgreSQL's word comes in time.
func waitOnServer(ctx context.Context) time.Duration {
	const longest, shortest = time.Minute, 5 * time.Millisecond
	deadline, ok := ctx.Deadline()
	if !ok {
		return longest
	}
	return min(longest, max(shortest, time.Until(deadline)*3/4))
}

// txHold is the hold of a lease that is a transaction.
type txHold struct {
	nonce  token.Nonce
	label  string
	ctx    context.Context //nolint:containedctx // ends with the hold
	cancel context.CancelCauseFunc
}

func newTxHold(ctx context.Context, label string) *txHold {
	h := &txHold{nonce: token.NewNonce(), label: label}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return h
}

// end ends the hold once its transaction has.
func (h *txHold) end(l *Lease) {
	h.cancel(&LostError{Resource: l.resource, Token: l.Token(), Reason: lease.ReasonReleased, Err: ErrReleased})
}

func (h *txHold) Token() token.Token       { return 0 }
func (h *txHold) Nonce() token.Nonce       { return h.nonce }
func (h *txHold) Label() string            { return h.label }
func (h *txHold) Context() context.Context { return h.ctx }
func (h *txHold) Err() error               { return context.Cause(h.ctx) }
func (h *txHold) CounterWasAbsent() bool   { return false }

// Remaining has no end to tell of: the lease lasts as long as the function runs.
func (h *txHold) Remaining() time.Duration {
	if h.Err() != nil {
		return 0
	}
	return lease.MaxTTL
}

func (h *txHold) Reissue(context.Context, token.Token) (token.Token, error) {
	return 0, invalidf("the token of a lease that is a transaction comes from the fence")
}

func (h *txHold) Release(context.Context) error {
	return invalidf("a lease that is a transaction ends when the function returns")
}
