package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// Locker grants leases by session-level advisory locks. It is safe for concurrent use and needs no closing: its one
// connection and its one goroutine are there while leases are held or awaited, the connection a little longer.
type Locker struct {
	pool  *pgxpool.Pool
	opts  Options
	turns Turns
	now   func() clock.Instant // by all clocks of this host

	mu      sync.Mutex
	session *session
}

// NewLocker makes a Locker on the caller's pool. It sends nothing. A nil pool and options out of range are refused with
// ErrInvalid.
//
// The pool has to lead straight to one primary. Its connections are not used for locks, apart from one which is taken
// out of it for good, with its next place free again, whenever the locker has none.
func NewLocker(pool *pgxpool.Pool, opts *Options) (*Locker, error) {
	if pool == nil {
		return nil, invalidf("the pool is nil")
	}
	v := opts.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	return &Locker{pool: pool, opts: v, now: clock.NewSystem(v.WallClock).Now}, nil
}

// request is one attempt to acquire.
type request struct {
	ctx      context.Context //nolint:containedctx // the lease's context has its values
	resource string
	label    string
	key      int64
	turn     *Turn // nil once somebody else has to end it
}

// heldHere is what others of this process meet while the lease is held.
func (l *Locker) heldHere(r *request) error {
	return &HeldError{Resource: r.resource, Label: l.opts.Label}
}

func (l *Locker) request(ctx context.Context, resource string, opts *AcquireOptions) (*request, error) {
	label := l.opts.Label
	if opts != nil && opts.Label != "" {
		label = opts.Label
	}
	if err := checkResource(resource); err != nil {
		return nil, err
	}
	if !isText(label) {
		return nil, invalidf("the label is not UTF-8 without U+0000")
	}
	return &request{ctx: ctx, resource: resource, label: label, key: Key(l.opts.Namespace, resource)}, nil
}

// Acquire waits for the lease of a resource. Those of this process who wait for it are served in the order they came,
// and hold no connection; between processes the first to ask after a release has it. ctx bounds the wait and
// gives the lease's context its values; its end does not end the lease.
//
// Errors: ErrInvalid; when ctx ends, the cause of that and ErrHeld or ErrUnavailable, whichever was met last.
func (l *Locker) Acquire(ctx context.Context, resource string, opts *AcquireOptions) (*Lease, error) {
	r, err := l.request(ctx, resource, opts)
	if err != nil {
		return nil, err
	}
	if r.turn, err = l.turns.Take(ctx, r.key); err != nil {
		return nil, err
	}
	defer r.giveUp()
	turn := r.turn
	if turn.row%rowLength == rowLength-1 {
		pause(ctx, othersTurn)
	}
	for {
		lease, err := l.stay(ctx, r)
		switch ended := ctx.Err(); {
		case err == nil || r.turn == nil && ended == nil || errors.Is(err, ErrInvalid) || errors.Is(err, ErrLost):
			return lease, err
		case ended != nil && turn.Last() != nil: // which err may have missed
			return nil, errors.Join(turn.Last(), ended)
		case ended != nil:
			return nil, err
		}
		pause(ctx, pollEvery/2+rand.N(pollEvery))
	}
}

const (
	// pollEvery is the mean pause between two tries while PostgreSQL is unavailable.
	pollEvery = 50 * time.Millisecond
	// rowLength is how often in a row a process hands a lock on within itself before it lets others
	// have a look first, and othersTurn for how long.
	rowLength  = 8
	othersTurn = 5 * time.Millisecond
)

// TryAcquire asks for the lease of a resource once, or, where somebody of this process is about to ask or holds it, waits to hear what came of
// that. ctx is as with Acquire.
//
// Errors: ErrInvalid; *HeldError when somebody else holds it; ErrUnavailable, after which nothing is held.
func (l *Locker) TryAcquire(ctx context.Context, resource string, opts *AcquireOptions) (*Lease, error) {
	r, err := l.request(ctx, resource, opts)
	if err != nil {
		return nil, err
	}
	if r.turn, err = l.turns.Try(ctx, r.key); err != nil {
		return nil, err
	}
	defer r.giveUp()
	s := l.join()
	lease, err := s.look(ctx, r, true)
	if err != nil {
		s.drop()
	}
	return lease, err
}

// giveUp ends the turn, unless it has become the lease's or the session's.
func (r *request) giveUp() {
	if r.turn != nil {
		r.turn.Done()
	}
}

// join makes the caller a user of the session, a new one where there is none.
func (l *Locker) join() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.session == nil || !l.session.join() {
		l.session = newSession(l)
	}
	return l.session
}

// drop ends a use.
func (s *session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
}

// stay waits for the lease for as long as one session lasts.
func (l *Locker) stay(ctx context.Context, r *request) (*Lease, error) {
	s := l.join()
	lease, err := s.look(ctx, r, true)
	if errors.Is(err, ErrHeld) && ctx.Err() == nil {
		lease, err = s.await(ctx, r, err)
	}
	if err != nil {
		s.drop()
	}
	return lease, err
}

// await looks whenever there is word of the key, and every LookEvery.
func (s *session) await(ctx context.Context, r *request, held error) (*Lease, error) {
	word := s.register(r.key)
	defer s.unregister(r.key, word)
	again := time.NewTimer(0) // once more now that word would reach us
	defer again.Stop()
	for {
		select {
		case <-word:
		case <-again.C:
		case <-s.ended:
		case <-ctx.Done():
			return nil, held
		}
		lease, err := s.look(ctx, r, false)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, held // what was met last
		case err == nil || !errors.Is(err, ErrHeld):
			return lease, err
		}
		again.Reset(s.locker.opts.LookEvery)
	}
}

// register has word of a key come to the channel, from before the next look on.
func (s *session) register(key int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	word := make(chan struct{}, 1)
	s.heads[key] = word
	if !s.subscribed {
		s.push(s.subscription())
	}
	return word
}

// unregister ends that, unless the turn has gone on to another, who has registered since.
func (s *session) unregister(key int64, word <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heads[key] == word {
		delete(s.heads, key)
	}
}

// look asks for the lock once. A call that ctx ends before its answer is carried on without the caller, who has no turn
// any more then.
func (s *session) look(ctx context.Context, r *request, naming bool) (*Lease, error) {
	a := &attempt{session: s, request: *r, naming: naming}
	c := &call{ask: a.ask, settled: a.settled}
	s.mu.Lock()
	s.push(c)
	s.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if s.abandon(c, a) {
			r.turn = nil
		}
		return nil, unavailable(ctx, "acquire", r.resource, ctx.Err())
	}
	return a.outcome(r, c.err)
}

// abandon leaves a call to itself. It reports whether the turn has gone with it.
func (s *session) abandon(c *call, a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.withdraw(c) {
		return false
	}
	select {
	case <-c.done:
		if a.lease == nil {
			return false
		}
		a.lease.end(&LostError{Resource: a.request.resource, Reason: ReasonReleased, Err: ErrReleased})
		s.users++ // the lease's
		s.unlock(a.request.key, a.request.turn)
	default:
		a.left = true
	}
	return true
}

// attempt is one look.
type attempt struct {
	session *session
	request request
	naming  bool

	got     bool
	holder  string
	refused error // of the look alone, and not of the session

	left  bool // by the caller, under mu
	lease *Lease
}

func (a *attempt) ask(k *link) (err error) {
	for naming := a.naming; ; naming = false { // not everybody may look at who it is
		a.got, a.holder, err = k.tryLock(a.request.key, naming)
		if !answered(err) {
			a.refused = nil
			return err
		}
		// PostgreSQL refused: out of lock space, or cancelled by somebody. Had it locked before that, the lock would stay.
		a.refused = err
		if err := k.forget(a.request.key); err != nil || !naming {
			return err
		}
	}
}

// settled turns a lock that was got into a lease, or gives it back where nobody wants it any more.
func (a *attempt) settled(err error) {
	s := a.session
	switch {
	case err != nil || !a.got:
		if a.left {
			a.request.turn.Done()
		}
	case a.left:
		s.users++
		s.unlock(a.request.key, a.request.turn)
	default:
		a.lease = s.grant(&a.request)
	}
}

func (a *attempt) outcome(r *request, ended error) (*Lease, error) {
	switch {
	case ended != nil:
		return nil, r.met(unavailable(context.Background(), "acquire", r.resource, ended))
	case a.refused != nil:
		return nil, r.met(unavailable(context.Background(), "acquire", r.resource, a.refused))
	case a.lease == nil:
		return nil, r.met(&HeldError{Resource: r.resource, Label: a.holder})
	}
	r.turn = nil // the lease's
	if err := a.lease.Err(); err != nil {
		return nil, err
	}
	return a.lease, nil
}

// met tells the others of this process too.
func (r *request) met(err error) error {
	r.turn.Met(err)
	return err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
