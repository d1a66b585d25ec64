package advisory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/internal/encoding"
	"github.com/fencepost-pg/fencepost/internal/turns"
)

// Locker grants leases with session-level advisory locks. It is safe for concurrent use and need not be closed: it has
// its one connection and one goroutine only while leases are held or awaited, the connection a little longer.
type Locker struct {
	pool     *pgxpool.Pool
	opts     Options
	turns    turns.Turns
	now      func() clock.Instant // by all clocks of this host
	capacity func(table int64) int64

	mu      sync.Mutex
	session *session
}

// NewLocker makes a Locker on the caller's pool. It sends nothing. It refuses a nil pool and options out of range with
// ErrInvalid.
//
// The pool must connect directly to one primary. Whenever the locker has no connection, it takes one out of the pool
// for good; the pool may then open another in its place. The locker does not use the pool's other connections.
func NewLocker(pool *pgxpool.Pool, opts *Options) (*Locker, error) {
	if pool == nil {
		return nil, invalidf("the pool is nil")
	}
	v := opts.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	return &Locker{pool: pool, opts: v, now: clock.NewSystem(v.WallClock).Now, capacity: capacityOf}, nil
}

// request is one attempt to acquire.
type request struct {
	ctx      context.Context //nolint:containedctx // the lease's context has its values
	resource string
	label    string
	key      int64
	turn     *turns.Turn // nil once another owner has to end it
}

// heldHere is the error for other callers of this process while the lease is held.
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
	if !encoding.IsText(label) {
		return nil, invalidf("the label is not UTF-8 without U+0000")
	}
	return &request{ctx: ctx, resource: resource, label: label, key: Key(l.opts.Namespace, resource)}, nil
}

// Acquire waits for the lease of a resource. Waiters of this process are served in the order in which they came and
// hold no connection. Between processes, the first to ask after a release gets the lease. ctx bounds the wait and
// supplies the values of the lease's context; the end of ctx does not end the lease.
//
// Errors: ErrInvalid; when ctx ends, its cause joined with the last outcome, ErrHeld or ErrUnavailable; ErrUnavailable
// at once if this Locker holds as many leases as a session may: a quarter of the server's lock table.
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
	if turn.Before()%handOffs == handOffs-1 {
		pause(ctx, othersTurn)
	}
	for {
		lease, err := l.stay(ctx, r)
		switch ended := ctx.Err(); {
		case err == nil || r.turn == nil && ended == nil || errors.Is(err, ErrInvalid) || errors.Is(err, ErrLost),
			errors.Is(err, errFull):
			return lease, err
		case ended != nil && turn.Last() != nil: // err may have missed it
			return nil, fmt.Errorf("%w: %w", turn.Last(), ended)
		case ended != nil:
			return nil, err
		}
		pause(ctx, pollEvery/2+rand.N(pollEvery))
	}
}

const (
	// pollEvery is the mean pause between two tries while PostgreSQL is unavailable.
	pollEvery = 50 * time.Millisecond
	// handOffs is how often in a row a process hands a lock on within itself before it lets other processes look first,
	// for othersTurn.
	handOffs   = 8
	othersTurn = 5 * time.Millisecond
)

// TryAcquire asks for the lease of a resource once. If another goroutine of this process holds it or is asking for it,
// TryAcquire waits for that goroutine's outcome. ctx is as with Acquire.
//
// Errors: ErrInvalid; *HeldError if somebody else holds the lease; ErrUnavailable, after which nothing is held, also if
// this Locker holds as many leases as a session may: a quarter of the server's lock table.
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

// giveUp ends the turn, unless the lease or the session has taken it over.
func (r *request) giveUp() {
	if r.turn != nil {
		r.turn.Done()
	}
}

// join makes the caller a user of the session, and opens a session if there is none.
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

// await looks whenever a message about the key arrives, and every LookEvery.
func (s *session) await(ctx context.Context, r *request, held error) (*Lease, error) {
	word := s.register(r.key)
	defer s.unregister(r.key, word)
	again := time.NewTimer(0) // look again now that messages reach us
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
			return nil, held // the last outcome
		case err == nil || !errors.Is(err, ErrHeld):
			return lease, err
		}
		again.Reset(s.locker.opts.LookEvery)
	}
}

// register delivers messages about a key to the returned channel, starting before the next look.
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

// unregister ends that, unless the turn has passed to another waiter that has registered since.
func (s *session) unregister(key int64, word <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heads[key] == word {
		delete(s.heads, key)
	}
}

// look asks for the lock once. If ctx ends before the reply, the call continues without the caller, who then no longer
// has the turn.
func (s *session) look(ctx context.Context, r *request, naming bool) (*Lease, error) {
	a := &attempt{session: s, request: *r, naming: naming}
	c := &call{ask: a.ask, refuse: a.refuse, settled: a.settled}
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

// abandon detaches the caller from a call. It reports whether the turn stays with the call.
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
	refused error // concerns this look only, not the session

	left  bool // the caller has left; under mu
	lease *Lease
}

func (a *attempt) ask(k *link) (err error) {
	for naming := a.naming; ; naming = false { // not every role may see the holder
		a.got, a.holder, err = k.tryLock(a.request.key, naming)
		if !answered(err) {
			a.refused = nil
			return err
		}
		// PostgreSQL refused: the lock table was full, or somebody cancelled the statement. If it had locked before
		// that, the lock would remain.
		a.refused = err
		if err := k.forget(a.request.key); err != nil || !naming {
			return err
		}
	}
}

// settled turns an acquired lock into a lease, or releases it if the caller has left.
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
	r.turn = nil // the lease has it
	if err := a.lease.Err(); err != nil {
		return nil, err
	}
	return a.lease, nil
}

// met also passes the outcome to the other goroutines of this process.
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
