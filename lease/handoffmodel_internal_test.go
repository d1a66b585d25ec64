package lease

import "testing"

// This is a model of a hand-off in one message, searched state by state. A release grants the lease to the head of the
// queue, under the head's own nonce and for a short time, and the message to the head carries the grant.
//
// One waiter is followed. It asks and queues up, and may look again. Every message may be late, lost, delivered twice,
// or arrive after its sender has moved on. Rivals take the lease whenever it is free and release it at any time, so the
// waiter may be granted it twice. The waiter may give up or stand still at any time: nothing forces it to act. Before a
// grant another server may take over with all data, whose clock is ahead, and the clock may be set back. The server's
// clock may run fast by as much as the margin covers. While a lease lasts its server and the clock's rate stay: what
// else may happen then is the same for every lease, and the fence's to answer.
//
// The claim: whenever the waiter trusts its lease, the server has it under that nonce and token.
const (
	handTTL         = 4
	handReservation = 3
	handMargin      = 1
	handEnd         = 4 // time ends there. (A search up to 9 with a TTL of 5 has 39 million states and takes minutes.)
	handAhead       = 2 // of the clock of the server that takes over
)

type handOwner uint8

const (
	handFree   handOwner = iota
	handRival            // also the waiter's under the nonce of an attempt that it has given up
	handWaiter           // under the waiter's nonce
)

type handPhase uint8

const (
	handAsking   handPhase = iota // has no place yet
	handQueued                    // has an anchor, and waits for the message
	handChecking                  // was granted the lease, and asks the server before it trusts that
	handHolding
	handOver
)

// handGrant is a grant as its message has it.
type handGrant struct {
	made     bool
	at, ends uint8 // by the server's clock
	server   uint8
}

// handLook is an acquire under way.
type handLook struct {
	where  modelMessage
	sent   uint8 // by the waiter's clock
	at     uint8 // by the server's clock, in the reply
	server uint8
	queued bool  // the reply says that the waiter stands in the queue
	number uint8 // the waiter's grant that it has, in the reply
}

// handCall is the confirmation under way.
type handCall struct {
	where modelMessage
	sent  uint8
}

type handState struct {
	now, clock, server      uint8
	ranFast, tookOver, back bool

	owner        handOwner
	number       uint8 // of the waiter's grant that the server has
	expires      uint8
	inQueue      bool
	grants       [2]handGrant
	look         handLook
	looks        uint8
	confirm      handCall
	phase        handPhase
	anchor       uint8 // when the last answered look was sent
	anchorAt     uint8 // the server's time in its reply
	anchorServer uint8
	token        uint8 // of the grant that the waiter took, from 1
	until        uint8
}

// handModel is one search. Each rule that may be left out is one without which the claim is wrong.
type handModel struct {
	fromReceipt    bool // the deadline counts from when the message came
	anyServer      bool // the server that granted need not be the one that answered
	noMargin       bool
	anyToken       bool // the confirmation compares the nonce alone
	lateCounts     bool // a reply to a confirmation counts also once the lease that it confirms is over
	looksOverwrite bool // a look of the granted waiter takes the lease under a nonce of its own
	stepsForward   bool // the clock may be set forward during the wait, which is beyond the promise

	seen  map[handState]bool
	queue []handState
}

func (m *handModel) search() (bad handState, found bool) {
	m.seen = map[handState]bool{}
	m.add(handState{owner: handRival, expires: handTTL})
	for len(m.queue) > 0 {
		s := m.queue[len(m.queue)-1]
		m.queue = m.queue[:len(m.queue)-1]
		if s.phase == handHolding && s.now < s.until && (s.owner != handWaiter || s.number != s.token) {
			return s, true
		}
		m.tick(s)
		m.others(s)
		m.lookOn(s)
		m.confirmOn(s)
		for i := range s.grants {
			m.receive(s, i)
		}
	}
	return bad, false
}

func (m *handModel) add(s handState) {
	if s.owner != handFree && s.clock >= s.expires {
		s.owner, s.number, s.expires = handFree, 0, 0
	}
	if s.phase == handOver {
		return // it never trusts anything again
	}
	if !m.seen[s] {
		m.seen[s] = true
		m.queue = append(m.queue, s)
	}
}

// tick lets time pass, on a server whose clock may be fast once.
func (m *handModel) tick(s handState) {
	if s.now == handEnd {
		return
	}
	s.now++
	s.clock++
	m.add(s)
	if !s.ranFast {
		s.ranFast = true
		s.clock++
		m.add(s)
	}
}

// others is what happens at the server without the waiter.
func (m *handModel) others(s handState) {
	switch s.owner {
	case handFree:
		taken := s
		taken.owner, taken.expires = handRival, s.clock+handTTL
		m.add(taken)
	case handRival:
		m.add(s.handOn())
	case handWaiter:
		return // from here on the server and its clock stay
	}
	if !s.tookOver {
		other := s
		other.tookOver, other.server = true, 1
		other.clock += handAhead
		m.add(other)
	}
	if !s.back && s.clock >= handAhead {
		set := s
		set.back = true
		set.clock -= handAhead
		m.add(set)
	}
	if m.stepsForward && !s.back {
		set := s
		set.back = true
		set.clock += handAhead
		m.add(set)
	}
}

// handOn is a release: the lease goes to the waiter if it stands in the queue.
func (s handState) handOn() handState {
	s.owner, s.expires = handFree, 0
	for i := range s.grants {
		if s.inQueue && !s.grants[i].made {
			s.inQueue, s.owner, s.number, s.expires = false, handWaiter, uint8(i)+1, s.clock+handReservation
			s.grants[i] = handGrant{made: true, at: s.clock, ends: s.expires, server: s.server}
		}
	}
	return s
}

// receive is the arrival of the message about a grant, which stays under way: it may come twice.
func (m *handModel) receive(s handState, i int) {
	g := s.grants[i]
	if !g.made || s.phase != handQueued { // a waiter that has taken one grant takes no other
		return
	}
	s.token = uint8(i) + 1
	s.until = m.deadline(s, g)
	s.phase = handChecking
	if s.now < s.until {
		s.phase = handHolding
	}
	s.confirm = handCall{where: toServer, sent: s.now}
	m.add(s)
}

// deadline is until when a grant may be trusted at once; 0 if the server has to be asked first.
func (m *handModel) deadline(s handState, g handGrant) uint8 {
	margin := uint8(handMargin)
	if m.noMargin {
		margin = 0
	}
	granted := s.anchor + g.at - s.anchorAt
	switch {
	case m.fromReceipt:
		return s.now + g.ends - g.at - margin
	case !m.anyServer && g.server != s.anchorServer, g.at < s.anchorAt, granted > s.now:
		return 0
	}
	return s.anchor + g.ends - s.anchorAt - margin
}

// lookOn sends an acquire, carries it out, and delivers the reply.
func (m *handModel) lookOn(s handState) {
	switch s.look.where {
	case nowhere:
		if s.phase <= handQueued && s.looks < 2 {
			s.looks++
			s.look = handLook{where: toServer, sent: s.now}
			m.add(s)
		}
	case toServer:
		m.add(m.carriedOut(s))
	case backYes, backNo:
		m.answered(s)
	}
}

// carriedOut is what acquire.lua does. A free lease goes to the attempt's own nonce, which is not followed here.
func (m *handModel) carriedOut(s handState) handState {
	s.look.where, s.look.at, s.look.server = backNo, s.clock, s.server
	switch {
	case s.owner == handWaiter && m.looksOverwrite, s.owner == handFree:
		s.owner, s.number, s.expires = handRival, 0, s.clock+handTTL
	case s.owner == handWaiter:
		s.look.where, s.look.number, s.expires = backYes, s.number, max(s.expires, s.clock+handTTL)
	default:
		s.look.queued, s.inQueue = true, true
	}
	return s
}

func (m *handModel) answered(s handState) {
	l := s.look
	s.look = handLook{}
	if s.phase > handQueued {
		m.add(s) // the attempt was given up before: its reply changes nothing
		return
	}
	if l.where == backYes { // the lease is the waiter's, under its nonce; the deadline counts from this call
		s.phase, s.token, s.until = handHolding, l.number, l.sent+handTTL-handMargin
	} else if l.queued {
		s.phase, s.anchor, s.anchorAt, s.anchorServer = handQueued, l.sent, l.at, l.server
	}
	m.add(s)
}

// confirmOn carries the confirmation out, and delivers the reply. While there is none it is sent again. It compares the
// token as long as the grant is not trusted; afterwards the nonce alone, and then a reply after the deadline is a loss.
func (m *handModel) confirmOn(s handState) {
	switch s.confirm.where {
	case nowhere:
		return
	case toServer:
		again := s
		again.confirm.sent = s.now
		m.add(again)
		s.confirm.where = backNo
		if s.owner == handWaiter && (m.anyToken || s.phase == handHolding || s.number == s.token) {
			s.confirm.where, s.expires = backYes, max(s.expires, s.clock+handTTL)
		}
	case backNo:
		s.phase = handOver
	case backYes:
		if s.phase == handHolding && s.now >= s.until && !m.lateCounts { // a late reply is a loss
			s.phase = handOver
			break
		}
		s.phase, s.until = handHolding, max(s.until, s.confirm.sent+handTTL-handMargin)
		s.confirm = handCall{}
	}
	m.add(s)
}

func (m *handModel) wantHeld(t *testing.T) {
	t.Helper()
	if bad, found := m.search(); found {
		t.Errorf("trusted, and not the waiter's: %+v", bad)
	}
	t.Logf("%d states", len(m.seen))
	if len(m.seen) < 10_000 {
		t.Errorf("%d states are too few to say anything", len(m.seen))
	}
}

func TestModel_AHandOffInOneMessageIsTrustedOnlyWhileTheServerHasIt(t *testing.T) {
	t.Parallel()
	(&handModel{}).wantHeld(t)
}

// The controls: each rule is needed.
func TestModelControl_AHandOffInOneMessageNeedsEachOfItsRules(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*handModel{
		"the deadline counts from the message":   {fromReceipt: true},
		"another server's clock is as good":      {anyServer: true},
		"no drift margin":                        {noMargin: true},
		"a confirmation of any token of a nonce": {anyToken: true},
		"a late reply revives a lease":           {lateCounts: true},
		"a late look takes the lease over":       {looksOverwrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, found := m.search(); !found {
				t.Error("the model sees nothing wrong with it")
			}
			t.Logf("%d states", len(m.seen))
		})
	}
}

// The limit: I6 is promised for a clock of bounded rate. If the server's clock is set forward while a waiter waits, and
// the message about its grant is late as well, the waiter trusts the lease for up to as long as the message was late.
func TestModelLimit_AServersClockSetForwardDuringAWait(t *testing.T) {
	t.Parallel()
	if _, found := (&handModel{stepsForward: true}).search(); !found {
		t.Error("there is no such limit any more: say so in docs/safety.md")
	}
}
