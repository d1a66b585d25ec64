package advisory

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/token"
)

// session is one session of PostgreSQL, shared by all that this process holds and awaits.
//
// Its goroutine alone uses the connection, and is there while something is held or awaited. What is to be asked
// stands in calls, and wakes it where it listens.
//
// Invariants:
//   - once over, it stays over: its leases are lost and its connection is closed, never used again;
//   - what it asks never waits for others in the server, so an answer that does not come in time is a doubt;
//   - proof was read before the call was sent that PostgreSQL last answered.
type session struct {
	locker *Locker

	mu          sync.Mutex
	link        *link              // nil before it is opened
	running     bool               // its goroutine is there
	listening   bool               // that waits for messages: an interrupt ends it
	subscribed  bool               // LISTEN was answered, and UNLISTEN has not been asked for
	unheard     bool               // kept from before; nothing has been heard since
	stopOpening context.CancelFunc // nil unless it is being opened
	kept        *time.Timer        // closes the connection that nobody needs
	users       int                // those who wait, and leases
	calls       []*call
	current     *call
	leases      map[*Lease]struct{}
	heads       map[int64]chan struct{} // who waits for word of a key
	proof       clock.Instant
	over        error
	ended       chan struct{} // closed with over
}

// call is something to ask of the server.
type call struct {
	ask func(k *link) error // an error is a doubt
	// settled is called once, with the session's mu held: err is nil after an answer, and otherwise why the session
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
		s.running, s.unheard = true, s.link != nil
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

// wake has the goroutine look at what there is to do. Called with mu held.
func (s *session) wake() {
	if s.listening {
		s.link.interrupt()
	}
}

// push asks for something. Called with mu held, by a user.
func (s *session) push(c *call) {
	c.done = make(chan struct{})
	if s.over != nil {
		s.settle(c, s.over)
		return
	}
	s.calls = append(s.calls, c)
	s.wake()
}

// withdraw takes a call back that has not been sent. Called with mu held.
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

// unlock asks for a lock to be given back, and then ends the turn and the use that went with it. Called with mu held.
func (s *session) unlock(key int64, turn *Turn) *call {
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

// open opens the connection, for as long as somebody needs it. Called with mu held, which it gives back.
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
		return // those it was stopped for have left, and another has come since
	}
	if err != nil {
		s.end(&doubt{ReasonUnreachable, err})
		return
	}
	s.link, s.proof = k, began
}

// openWithin bounds one try to open a connection; whoever waits begins another.
const openWithin = 10 * time.Second

// perform asks one thing. Called with mu held, which it gives back.
func (s *session) perform(c *call) {
	s.current = c
	k := s.link
	s.mu.Unlock()
	began := s.locker.now()
	err := c.ask(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
	switch {
	case s.over != nil: // ended meanwhile, and c with it
	case err != nil && s.unheard:
		s.replace()
		s.calls = append([]*call{c}, s.calls...)
	case err != nil:
		s.end(doubtOf(err))
		s.settle(c, s.over)
	default:
		s.unheard, s.proof = false, began
		s.settle(c, nil)
		s.evaluate()
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

// listen waits for messages. Called with mu held, which it gives back.
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
	case s.unheard:
		s.replace()
	default:
		s.end(&doubt{ReasonSession, err})
	}
}

// replace has another connection opened for one that ended, perhaps while nobody needed it. Nothing is lost with it: a
// lease begins with an answer. Called with mu held.
func (s *session) replace() {
	s.link.sever()
	s.link, s.unheard, s.subscribed = nil, false, false
}

// probe asks for a sign of life.
func (s *session) probe() *call {
	if s.subscribed && len(s.heads) == 0 {
		return s.unsubscription()
	}
	return &call{done: make(chan struct{}), ask: func(k *link) error {
		_, err := k.ask(`SELECT 1`)
		return err
	}}
}

// unsubscription has no messages come any more. Whoever registers from now on, before the answer too, subscribes anew. Called with
// mu held.
func (s *session) unsubscription() *call {
	s.subscribed = false
	return &call{
		done: make(chan struct{}),
		ask:  func(k *link) error { _, err := k.ask(`UNLISTEN ` + channel); return err },
	}
}

// subscription has messages come from now on.
func (s *session) subscription() *call {
	return &call{
		ask:     func(k *link) error { _, err := k.ask(`LISTEN ` + channel); return err },
		settled: func(err error) { s.subscribed = err == nil },
	}
}

// told wakes who waits for a key. It is called by the session's goroutine, without mu.
func (s *session) told(payload string) {
	key, err := strconv.ParseInt(payload, 10, 64)
	if err != nil {
		return // not ours
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.heads[key] <- struct{}{}:
	default: // nobody, or one who has been told already
	}
}

// expire closes the connection that nobody needs.
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

var errIdle = errors.New("nobody needed it")

// fail ends the session from outside.
func (s *session) fail(why *doubt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.end(why)
	}
}

// evaluate ends the session where nothing has been heard for too long. Called with mu held.
func (s *session) evaluate() {
	if s.over == nil && len(s.leases) > 0 && s.remaining() == 0 {
		reason := ReasonUnreachable
		if time.Since(s.proof.Time) < trusted(s.locker.opts.TTL) {
			reason = ReasonClock
		}
		s.end(&doubt{reason, errSilent})
	}
}

var errSilent = errors.New("nothing was heard of PostgreSQL for longer than the TTL")

func (s *session) remaining() time.Duration {
	silent, _ := s.locker.now().Since(s.proof)
	return max(0, trusted(s.locker.opts.TTL)-silent)
}

// end ends the session, and with it all that was held and asked. Called with mu held, once.
func (s *session) end(why *doubt) {
	s.over = why
	close(s.ended)
	if s.link != nil {
		s.link.sever()
	}
	for l := range s.leases {
		l.lose(why)
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

// grant makes a lease of a lock that was got. Called with mu held.
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
