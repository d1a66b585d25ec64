package advisory

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/internal/turns"
	"github.com/fencepost-pg/fencepost/token"
)

// session is one PostgreSQL session, shared by all leases and waiters of this process.
//
// Only its goroutine uses the connection. The goroutine runs while something is held or awaited. Pending statements are
// in calls; a new call wakes the goroutine if it listens.
//
// Invariants:
//   - once over, it stays over: its leases are lost and its connection is closed, never used again;
//   - its statements never wait for others in the server, so a reply that does not come in time is a doubt;
//   - proof was read before the call that PostgreSQL last answered was sent.
type session struct {
	locker *Locker

	mu          sync.Mutex
	link        *link              // nil before it is opened
	running     bool               // its goroutine runs
	listening   bool               // the goroutine waits for messages: an interrupt ends that
	subscribed  bool               // LISTEN was answered, and UNLISTEN has not been sent
	silent      bool               // kept while idle, and not answered since
	stopOpening context.CancelFunc // nil unless it is being opened
	kept        *time.Timer        // closes the idle connection
	users       int                // waiters and leases
	calls       []*call
	current     *call
	leases      map[*Lease]struct{}
	heads       map[int64]chan struct{} // the waiter for messages about a key
	proof       clock.Instant
	over        error
	ended       chan struct{} // closed with over
}

// call is a statement for the server.
type call struct {
	ask func(k *link) error // an error is a doubt
	// refuse reports, just before the call would be sent, whether not to send it; nil means always send. A refusal is
	// no sign of life.
	refuse func(k *link) bool
	// settled is called once, with the session's mu held. err is nil after a reply; otherwise it says why the session
	// ended. May be nil.
	settled func(err error)
	err     error
	done    chan struct{}
}

func newSession(l *Locker) *session {
	return &session{
		locker: l, leases: make(map[*Lease]struct{}), heads: make(map[int64]chan struct{}), ended: make(chan struct{}),
	}
}

// join makes the caller a user, unless the session is over.
func (s *session) join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return false
	}
	s.users++
	if !s.running {
		if s.kept != nil {
			s.kept.Stop()
		}
		s.running, s.silent = true, s.link != nil
		go s.run()
	}
	return true
}

// leave ends one use. Called with mu held.
func (s *session) leave() {
	s.users--
	if s.users > 0 {
		return
	}
	if s.stopOpening != nil {
		s.stopOpening()
	}
	s.wake()
}

// wake makes the goroutine check for work. Called with mu held.
func (s *session) wake() {
	if s.listening {
		s.link.interrupt()
	}
}

// push queues a call. Called with mu held, by a user.
func (s *session) push(c *call) {
	c.done = make(chan struct{})
	if s.over != nil {
		s.settle(c, s.over)
		return
	}
	s.calls = append(s.calls, c)
	s.wake()
}

// withdraw removes a call that has not been sent. Called with mu held.
func (s *session) withdraw(c *call) bool {
	for i, other := range s.calls {
		if other == c {
			s.calls = append(s.calls[:i:i], s.calls[i+1:]...)
			return true
		}
	}
	return false
}

func (s *session) settle(c *call, err error) {
	c.err = err
	if c.settled != nil {
		c.settled(err)
	}
	close(c.done)
}

// unlock queues the release of a lock; once settled, it ends the turn and the use that belong to it. Called with mu
// held.
func (s *session) unlock(key int64, turn *turns.Turn) *call {
	c := &call{
		ask: func(k *link) error { return k.unlock(key) },
		settled: func(error) {
			turn.Done()
			s.leave()
		},
	}
	s.push(c)
	return c
}

// run is the session's goroutine.
func (s *session) run() {
	for s.step() {
	}
}

func (s *session) step() bool {
	s.mu.Lock()
	switch {
	case s.over != nil:
		s.running = false
		s.mu.Unlock()
		return false
	case s.link == nil:
		s.open()
		return true
	case len(s.calls) > 0:
		c := s.calls[0]
		s.calls = s.calls[1:]
		s.perform(c)
		return true
	case s.users == 0 && !s.subscribed:
		s.running = false
		s.kept = time.AfterFunc(s.locker.opts.Linger, s.expire)
		s.mu.Unlock()
		return false
	case s.users == 0:
		s.perform(s.unsubscription())
		return true
	}
	if due := s.proof.Time.Add(s.locker.opts.ProbeEvery); time.Now().Before(due) {
		s.listen(due)
	} else {
		s.perform(s.probe())
	}
	return true
}

// open opens the connection while a user needs it. Called with mu held, which it releases.
func (s *session) open() {
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	s.stopOpening = cancel
	if s.users == 0 {
		cancel()
	}
	s.mu.Unlock()
	began := s.locker.now()
	k, err := openLink(ctx, s.locker.pool, &s.locker.opts, s.told)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopOpening = nil
	if err != nil && s.users > 0 && errors.Is(ctx.Err(), context.Canceled) {
		return // the users that it was stopped for have left, and another has joined since
	}
	if err != nil {
		s.end(&doubt{ReasonUnreachable, err})
		return
	}
	s.link, s.proof = k, began
}

// openWithin bounds one try to open a connection. A caller that still waits starts another.
const openWithin = 10 * time.Second

// perform makes one call. Called with mu held, which it releases.
func (s *session) perform(c *call) {
	k := s.link
	if c.refuse != nil && c.refuse(k) {
		s.settle(c, nil)
		s.mu.Unlock()
		return
	}
	s.current = c
	s.mu.Unlock()
	began := s.locker.now()
	err := c.ask(k)
	now := s.locker.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
	switch {
	case s.over != nil: // the session ended meanwhile, and c with it
	case err != nil && s.silent:
		s.replace()
		s.calls = append([]*call{c}, s.calls...)
	case err != nil:
		s.end(doubtOf(err))
		s.settle(c, s.over)
	default:
		s.silent, s.proof = false, began
		s.settle(c, nil)
		s.evaluate(now)
	}
}

// doubtOf says why an error ends the session.
func doubtOf(err error) *doubt {
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return &doubt{ReasonUnreachable, err}
	}
	return &doubt{ReasonSession, err}
}

// listen waits for messages. Called with mu held, which it releases.
func (s *session) listen(until time.Time) {
	s.link.until(until)
	s.listening = true
	s.mu.Unlock()
	err := s.link.listen()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = false
	switch {
	case err == nil || s.over != nil:
	case s.silent:
		s.replace()
	default:
		s.end(&doubt{ReasonSession, err})
	}
}

// replace makes the goroutine open another connection in place of one that ended, perhaps while idle. No lease is lost
// with it, because a lease begins with a reply. Called with mu held.
func (s *session) replace() {
	s.link.sever()
	s.link, s.silent, s.subscribed = nil, false, false
}

// probe returns a call that checks whether the server answers.
func (s *session) probe() *call {
	if s.subscribed && len(s.heads) == 0 {
		return s.unsubscription()
	}
	return &call{done: make(chan struct{}), ask: func(k *link) error {
		_, err := k.ask(`SELECT 1`)
		return err
	}}
}

// unsubscription stops the messages. A waiter that registers from now on, even before the reply, subscribes again.
// Called with mu held.
func (s *session) unsubscription() *call {
	s.subscribed = false
	return &call{
		done: make(chan struct{}),
		ask:  func(k *link) error { _, err := k.ask(`UNLISTEN ` + channel); return err },
	}
}

// subscription starts the messages.
func (s *session) subscription() *call {
	return &call{
		ask:     func(k *link) error { _, err := k.ask(`LISTEN ` + channel); return err },
		settled: func(err error) { s.subscribed = err == nil },
	}
}

// told wakes the waiter for a key. It is called by the session's goroutine, without mu.
func (s *session) told(payload string) {
	key, err := strconv.ParseInt(payload, 10, 64)
	if err != nil {
		return // not ours
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.heads[key] <- struct{}{}:
	default: // no waiter, or one that has been woken already
	}
}

// expire closes the idle connection.
func (s *session) expire() {
	s.mu.Lock()
	if s.running || s.over != nil {
		s.mu.Unlock()
		return
	}
	k := s.link
	s.link = nil
	s.end(&doubt{ReasonSession, errIdle})
	s.mu.Unlock()
	k.leave()
}

var errIdle = errors.New("the connection was idle")

// fail ends the session from outside.
func (s *session) fail(why *doubt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.end(why)
	}
}

// evaluate ends the session if it has had no reply for too long. The clocks were read before mu was taken, because
// Options.WallClock is the caller's code and may call a lease. Called with mu held.
func (s *session) evaluate(now clock.Instant) {
	if s.over == nil && len(s.leases) > 0 && s.remaining(now) == 0 {
		reason := ReasonUnreachable
		if time.Since(s.proof.Time) < trusted(s.locker.opts.TTL) {
			reason = ReasonClock
		}
		s.end(&doubt{reason, errSilent})
	}
}

var errSilent = errors.New("PostgreSQL did not answer for longer than the TTL")

func (s *session) remaining(now clock.Instant) time.Duration {
	silent, _ := now.Since(s.proof)
	return max(0, trusted(s.locker.opts.TTL)-max(0, silent)) // a reply may have come since the clocks were read
}

// end ends the session, with all its leases and calls. Called with mu held, once.
func (s *session) end(why *doubt) {
	s.over = why
	close(s.ended)
	if s.link != nil {
		s.link.sever()
	}
	for l := range s.leases {
		l.loseWithSession(why)
	}
	calls := s.calls
	if s.current != nil {
		calls = append(calls, s.current)
	}
	s.calls, s.current = nil, nil
	for _, c := range calls {
		s.settle(c, why)
	}
}

// grant makes a lease from an acquired lock. Called with mu held.
func (s *session) grant(r *request) *Lease {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.ctx))
	l := &Lease{
		session: s, resource: r.resource, label: r.label, nonce: token.NewNonce(), key: r.key, turn: r.turn,
		ctx: ctx, cancel: cancel,
	}
	s.leases[l] = struct{}{}
	r.turn.Met(s.locker.heldHere(r))
	return l
}
