package fencepost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/advisory"
	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/internal/pgclaim"
	"github.com/fencepost-pg/fencepost/internal/pgcommit"
	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/turns"
	"github.com/fencepost-pg/fencepost/lease"
	"github.com/fencepost-pg/fencepost/token"
)

// AdvisoryTx grants leases that are transactions. A transaction-level advisory lock, the token, the work and the commit
// all belong to one READ COMMITTED transaction on one connection. A holder that loses the lock loses its writes as
// well. AdvisoryTx does not need Redis, and works behind PgBouncer in transaction mode. It is safe for concurrent use,
// opens no connection of its own, and does not need to be closed.
//
// The fence is the same as under a [Store]: the transaction draws a token from the fence, and the token guards it.
// Write rows through an [AdvisoryTable] or with any SQL. [ClaimFromContext] returns the claim, with the token, in the
// function that [AdvisoryTx.Do] runs. There is no [Lease], because nothing could be done with one: the transaction is
// neither released nor renewed, and its claim guards no other transaction. After a rollback the token is drawn again,
// so a token counts only once Do has returned nil.
type AdvisoryTx struct {
	store *Store // without a locker
	turns turns.Turns
}

// AdvisoryTxOptions are the settings of an [AdvisoryTx]. The zero value, and a nil pointer, mean the defaults.
type AdvisoryTxOptions struct {
	// Namespace separates the resources of one application from those of others in the same database, as
	// [Options].Namespace does. A Store with the same namespace shares the fences. Default "default".
	Namespace string
	// MaxIdle is how long a transaction may be idle, or leave the server's data unacknowledged, before PostgreSQL ends
	// it. A holder that was stopped blocks the next one for up to this long. From 1 ms to 24 h. Default 30 s.
	MaxIdle time.Duration
	// SettleFor is how long a call tries to find out whether a transaction was committed after the reply to its COMMIT
	// was lost, before it returns ErrOutcomeUnknown. From 1 ms to 24 h. Default 5 s.
	SettleFor time.Duration
	// Label is stored with the token in the fence. It is UTF-8 without U+0000. Default: host name and process id.
	Label string
	// Logger logs what the AdvisoryTx repairs by itself. Default: nothing is logged.
	Logger *slog.Logger
	// Events are functions that are called when something happens. RenewedLate, Lost, Released and Reseed are never
	// called here. Acquired is called for each run of the transaction, inside it and before its function. Default:
	// none.
	Events Events
}

func (o *AdvisoryTxOptions) options() *Options {
	if o == nil {
		return nil
	}
	return &Options{
		Namespace: o.Namespace, MaxIdle: o.MaxIdle, SettleFor: o.SettleFor, Label: o.Label,
		Logger: o.Logger, Events: o.Events,
	}
}

// NewAdvisoryTx returns an [AdvisoryTx] on the caller's pool. It sends nothing. It returns ErrInvalid for a nil pool
// and for options out of range.
//
// The database needs the migrations of package migrations, and the pool's user USAGE on the schema fencepost and
// EXECUTE on its functions.
func NewAdvisoryTx(pool *pgxpool.Pool, opts *AdvisoryTxOptions) (*AdvisoryTx, error) {
	s, err := checked(pool, opts.options())
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(s.opts.Label) || strings.ContainsRune(s.opts.Label, 0) {
		return nil, invalidf("the label is not UTF-8 without U+0000")
	}
	return &AdvisoryTx{store: s}, nil
}

// Do locks the resource, draws the token, runs fn and commits, all in one transaction. nil means committed. A resource
// is 1 to 512 bytes of UTF-8 without U+0000.
//
// In each process one goroutine at a time waits for a resource in PostgreSQL, and holds a connection while it waits.
// The others wait in the process, first come, first served. If ctx ends during the wait, the error matches ctx's error.
// It also matches ErrHeld if the last attempt of this process found another holder, and ErrUnavailable otherwise.
//
// After 40001 or 40P01 the whole transaction runs again, as in [Store.Tx]. Each run has a claim of its own. Other
// errors are those of Tx, and ErrHeldByCaller as in [Store.Do]. ctx bounds the whole call except settling the outcome
// after a lost reply to COMMIT.
func (a *AdvisoryTx) Do(ctx context.Context, resource string, fn TxFunc) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	full, err := a.store.qualify(resource)
	if err != nil {
		return err
	}
	if err := a.store.checkHeld(ctx, resource, full); err != nil {
		return err
	}
	w := &lockedWork{resource: resource, full: full, key: advisory.Key(a.store.opts.Namespace, resource), fn: fn}
	w.began = time.Now()
	err = a.inTurn(ctx, w)
	if err != nil && !w.entered {
		a.store.refusedAcquire(ctx, resource, time.Since(w.began), err)
	}
	return err
}

// inTurn does the work once it is this goroutine's turn in the process.
func (a *AdvisoryTx) inTurn(ctx context.Context, w *lockedWork) (err error) {
	if w.turn, err = a.turns.Take(ctx, w.key); err != nil {
		return err
	}
	defer w.turn.Done()
	return a.store.transact(ctx, subject{resource: w.resource}, func() error {
		err := a.healed(ctx, w)
		if met := w.turn.Last(); w.cut && errors.Is(met, ErrHeld) {
			return fmt.Errorf("%w: %w", met, ctx.Err())
		}
		return err
	})
}

// Join is [AdvisoryTx.Do] for work that may be part of other work under the same lease. Inside a transaction of this
// AdvisoryTx that holds the resource, fn runs in a savepoint of that transaction, as in [Store.Join]. Otherwise Join is
// Do.
//
// nil means committed only if Join did not run in a savepoint. Errors are those of Do and [Store.Join]. ctx bounds the
// call.
func (a *AdvisoryTx) Join(ctx context.Context, resource string, fn TxFunc) error {
	if fn == nil {
		return invalidf("a transaction without a function")
	}
	full, err := a.store.qualify(resource)
	if err != nil {
		return err
	}
	if h, l, _ := a.store.joinable(ctx, full); h != nil {
		return h.join(ctx, l, fn)
	}
	return a.Do(ctx, resource, fn)
}

// FullName returns a resource's name with the namespace before it, as [Store.FullName] does.
func (a *AdvisoryTx) FullName(resource string) (string, error) { return a.store.qualify(resource) }

// lockedWork is the work of one Do, and its state.
type lockedWork struct {
	resource, full string
	key            int64
	fn             TxFunc

	turn    *turns.Turn // knows what the last attempt met
	began   time.Time   // when the wait for the next lease began
	entered bool        // the lock has been held at least once
	lifts   int         // of the fence, to rows that were ahead of it
	cut     bool        // ctx ended the wait for the lock in PostgreSQL, which had reported nothing else
}

// healed runs a transaction. It runs it again after it has lifted the fence to a row that was ahead of it.
func (a *AdvisoryTx) healed(ctx context.Context, w *lockedWork) error {
	for {
		r, err := a.attempt(ctx, w)
		ahead, ok := r.ahead(err)
		switch {
		case !ok:
			return err
		case w.lifts == txLifts:
			return fmt.Errorf("%w: %w", ErrTokenRegressed, err)
		}
		w.lifts++
		if err := a.lift(ctx, w, ahead); err != nil {
			return err
		}
	}
}

// lift raises the fence to a row, in the name of no holder: the transaction that met the row has ended, and the next
// one draws a token above it.
func (a *AdvisoryTx) lift(ctx context.Context, w *lockedWork, ahead *aheadError) error {
	if ahead.row == token.Max {
		return fmt.Errorf("%w: a row of %q carries the highest possible token", ErrTokenRegressed, w.resource)
	}
	h := newTxHold(a.store.opts.Label)
	l := newLease(a.store, w.resource, w.full, h)
	h.begin(ctx, l)
	defer h.end(l)
	tell, err := a.store.raise(ctx, l, Claim{Resource: w.full, Token: ahead.row, Nonce: h.nonce}, time.Time{})
	tell()
	switch {
	case errors.Is(err, fence.ErrJump):
		return fmt.Errorf("%w: %w", ErrTokenRegressed, err)
	case errors.Is(err, ErrStale):
		return nil // another caller has raised it as far
	case err != nil:
		return unavailable(ctx, err)
	}
	a.store.regressed(ctx, l, ahead.claim.Token, ahead.row, false)
	return nil
}

// attempt runs one transaction, under a lease of its own.
func (a *AdvisoryTx) attempt(ctx context.Context, w *lockedWork) (*txRun, error) {
	h := newTxHold(a.store.opts.Label)
	l := newLease(a.store, w.resource, w.full, h)
	h.begin(ctx, l)
	defer h.end(l)
	r := &txRun{store: a.store, one: [1]*Lease{l}, fn: w.fn}
	r.leases = r.one[:]
	r.open = func(ctx context.Context, conn *pgx.Conn, t *guardedTx) error { return a.open(ctx, conn, t, l, w) }
	return r, r.attempt(h.ctx)
}

// open locks and draws. It tries again if only the server-side time limit ended the wait.
func (a *AdvisoryTx) open(ctx context.Context, conn *pgx.Conn, t *guardedTx, l *Lease, w *lockedWork) error {
	if w.entered {
		w.began = time.Now() // this is another lease
	}
	waits := false // the first try does not
	begin := func(mark *pgcommit.Mark) (pgx.Tx, error) {
		d := pgclaim.Drawing{
			Resource: l.full, Nonce: l.hold.Nonce(), Label: l.hold.Label(), Key: w.key, MaxIdle: a.store.opts.MaxIdle,
		}
		if !waits {
			tx, err := a.beginNow(ctx, conn, l, d, mark)
			if tx != nil || err != nil {
				return tx, err
			}
			waits = true
		}
		return a.begin(ctx, conn, l, d, mark)
	}
	for {
		err := a.store.beginMarked(ctx, conn, t, begin)
		switch {
		case err == nil:
			w.entered = true
			w.turn.Met(&HeldError{Resource: w.resource, Label: a.store.opts.Label}) // by us, for this process
			a.store.acquired(ctx, l, time.Since(w.began))
			t.claims = append(t.first[:0], l.Claim())
			return nil
		case pgerr.TimedOut(err):
			w.turn.Met(&HeldError{Resource: w.resource})
		case ctx.Err() == nil:
			err = notDrawn(ctx, err)
			w.turn.Met(err)
			return err
		}
		if ctx.Err() != nil {
			w.cut = !w.entered && (pgerr.TimedOut(err) || errors.Is(err, ctx.Err()))
			return notDrawn(ctx, err)
		}
	}
}

// beginNow opens the transaction if that need not wait, all in one round trip. If it would have to, it returns no
// transaction and no error.
func (a *AdvisoryTx) beginNow(
	ctx context.Context, conn *pgx.Conn, l *Lease, d pgclaim.Drawing, mark *pgcommit.Mark,
) (pgx.Tx, error) {
	var drawn pgclaim.Drawn
	tx, err := beginDirect(ctx, conn, "", func() (pgx.Tx, error) { return pgclaim.BeginDrawn(ctx, conn, d, &drawn) })
	if tx == nil && err == nil {
		var b pgx.Batch
		b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		pgclaim.QueueDrawNow(&b, d, &drawn)
		tx, err = sendBegin(ctx, conn, &b, "")
	}
	switch {
	case err != nil && pgclaim.MayWait(err) && ctx.Err() == nil:
		return nil, nil // a limit, of its own or of the session
	case err != nil:
		return nil, err
	case drawn.Busy:
		rollback(ctx, tx)
		return nil, nil
	}
	l.setClaim(drawn.Claim)
	*mark = pgcommit.Mark{XID: drawn.XID, Incarnation: drawn.Incarnation}
	return tx, nil
}

// begin opens the transaction, all in one round trip, and waits for the lock.
func (a *AdvisoryTx) begin(
	ctx context.Context, conn *pgx.Conn, l *Lease, d pgclaim.Drawing, mark *pgcommit.Mark,
) (pgx.Tx, error) {
	var b pgx.Batch
	// READ COMMITTED, so that the function reads the state as it is once the lock is held.
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	// The server bounds the wait as well, because PostgreSQL does not notice during the wait that the client is gone.
	d.Wait = waitOnServer(ctx)
	drawn, err := pgclaim.QueueDraw(&b, d)
	if err != nil {
		return nil, err
	}
	tx, err := sendBegin(ctx, conn, &b, "")
	if err != nil {
		return nil, err
	}
	l.setClaim(drawn.Claim)
	*mark = pgcommit.Mark{XID: drawn.XID, Incarnation: drawn.Incarnation}
	return tx, nil
}

// waitOnServer returns how long one wait on the server may take. It is a little less than the caller has left, so that
// PostgreSQL's answer arrives in time.
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
	nonce token.Nonce
	label string
	over  atomic.Pointer[LostError] // nil until the transaction has ended

	ctx    context.Context //nolint:containedctx // of the transaction: it ends with the caller's and with the hold
	cancel context.CancelFunc
}

func newTxHold(label string) *txHold { return &txHold{nonce: token.NewNonce(), label: label} }

// begin begins the hold of l. It ends with end.
func (h *txHold) begin(ctx context.Context, l *Lease) {
	h.ctx, h.cancel = context.WithCancel(holding(ctx, l))
}

// end ends the hold once its transaction has ended.
func (h *txHold) end(l *Lease) {
	h.over.Store(&LostError{Resource: l.resource, Token: l.Token(), Reason: lease.ReasonReleased, Err: ErrReleased})
	h.cancel()
}

func (h *txHold) Nonce() token.Nonce       { return h.nonce }
func (h *txHold) Label() string            { return h.label }
func (h *txHold) Context() context.Context { return h.ctx }

func (h *txHold) Err() error {
	if lost := h.over.Load(); lost != nil {
		return lost
	}
	return nil
}

// Abandon does nothing: the lease ends with its transaction.
func (h *txHold) Abandon(lease.Reason, error) {}
