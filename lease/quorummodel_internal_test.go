package lease

import (
	"slices"
	"testing"
)

// This is a model of a lease over three servers, searched state by state. Messages are delivered in any order, at any
// time, or never. Time passes at any point. Servers drop shares when their time is over. The holder's decisions about a
// share are not modelled: the model runs the methods of share.
//
// The holder acquires, renews once, and fills what is missing. The contender acquires, and its replies come at once. At
// no time may both trust in a lease. A client that has given up, or whose lease is over, is not followed further: it
// never holds again.
const (
	modelNodes = 3
	modelTTL   = 2
	modelEnd   = 4 // time ends there
)

// A message is nowhere, on its way to the server, or on its way back.
type modelMessage uint8

const (
	nowhere modelMessage = iota
	toServer
	backYes
	backNo
)

// modelPart is the state of one client and one server.
type modelPart struct {
	share                         share
	acquire, renew, fill, release modelMessage
	granted, renewed              bool // as the client knows
}

// modelServer is one server: whose share it carries, until when, and the parts of both clients.
type modelServer struct {
	owner   int8 // -1 for nobody
	expires uint8
	part    [2]modelPart
}

type modelPhase uint8

const (
	modelIdle modelPhase = iota
	modelAsking
	modelHeld
	modelOver
)

type modelClient struct {
	phase       modelPhase
	start       uint8 // of the call under way
	until       uint8 // the lease is trusted before it
	hasRenewed  bool  // the one renewal was sent
	wasAnswered bool  // by a majority
}

type modelState struct {
	now    uint8
	server [modelNodes]modelServer
	client [2]modelClient
}

// model is one search. lateRepliesGiveBack is the rule that lost leases: the late reply to an acquire that had
// proceeded without it gave the share back, whatever had become of it.
type model struct {
	lateRepliesGiveBack bool

	seen  map[modelState]bool
	queue []modelState
}

// search returns a state in which both hold the lease.
func (m *model) search() (bad modelState, found bool) {
	m.seen = map[modelState]bool{}
	first := modelState{}
	for i := range first.server {
		first.server[i].owner = -1
	}
	m.add(first)
	for len(m.queue) > 0 {
		s := m.queue[len(m.queue)-1]
		m.queue = m.queue[:len(m.queue)-1]
		if s.client[0].trusts(s.now) && s.client[1].trusts(s.now) {
			return s, true
		}
		m.tick(s)
		for c := range s.client {
			m.decide(s, c)
			for n := range s.server {
				m.deliver(s, c, n)
			}
		}
	}
	return bad, false
}

func (c modelClient) trusts(now uint8) bool { return c.phase == modelHeld && now < c.until }

// add records a state to be explored. Servers are alike, so their order does not matter.
func (m *model) add(s modelState) {
	if s.client[0].phase == modelOver || s.client[1].phase == modelOver {
		return // a client that is over never holds again: nothing can go wrong from there
	}
	slices.SortFunc(s.server[:], func(a, b modelServer) int {
		x, y := a.packed(), b.packed()
		return slices.Compare(x[:], y[:])
	})
	if !m.seen[s] {
		m.seen[s] = true
		m.queue = append(m.queue, s)
	}
}

func (v modelServer) packed() (p [20]uint8) {
	p[0], p[1] = uint8(v.owner), v.expires
	for i, part := range v.part {
		at := 2 + 9*i
		for j, flag := range []bool{part.share.asked, part.share.sent, part.granted, part.renewed} {
			if flag {
				p[at+j] = 1
			}
		}
		p[at+4], p[at+5], p[at+6] = uint8(part.share.says), uint8(part.acquire), uint8(part.renew)
		p[at+7], p[at+8] = uint8(part.fill), uint8(part.release)
	}
	return p
}

func (m *model) tick(s modelState) {
	if s.now == modelEnd {
		return
	}
	s.now++
	for i := range s.server {
		if v := &s.server[i]; v.owner >= 0 && s.now >= v.expires {
			v.owner, v.expires = -1, 0
		}
	}
	for i := range s.client {
		if c := &s.client[i]; c.phase == modelHeld && s.now >= c.until {
			c.phase = modelOver // lost
		}
	}
	m.add(s)
}

// count returns the number of servers for which something holds.
func (s *modelState) count(c int, is func(modelPart) bool) (n int) {
	for i := range s.server {
		if is(s.server[i].part[c]) {
			n++
		}
	}
	return n
}

// decide adds what a client may do by itself.
func (m *model) decide(s modelState, c int) {
	switch k := s.client[c]; k.phase {
	case modelIdle:
		m.add(s.begin(c))
	case modelAsking:
		if s.count(c, func(p modelPart) bool { return p.granted }) > modelNodes/2 && s.now < k.start+modelTTL {
			s.client[c].phase, s.client[c].until = modelHeld, k.start+modelTTL
			m.add(s)
		}
	case modelHeld:
		if c == 0 && !k.hasRenewed {
			m.add(s.renew(c))
		}
		if k.hasRenewed && !k.wasAnswered && s.count(c, func(p modelPart) bool { return p.renewed }) > modelNodes/2 {
			m.add(s.confirm(c))
		}
	}
}

func (s modelState) begin(c int) modelState {
	s.client[c].phase, s.client[c].start = modelAsking, s.now
	for i := range s.server {
		if p := &s.server[i].part[c]; p.share.begin(false) {
			p.acquire = toServer
		}
	}
	return s
}

func (s modelState) renew(c int) modelState {
	s.client[c].hasRenewed, s.client[c].start = true, s.now
	for i := range s.server {
		s.server[i].part[c].renew = toServer
	}
	return s
}

// confirm applies a renewal that a majority has answered.
func (s modelState) confirm(c int) modelState {
	s.client[c].wasAnswered, s.client[c].until = true, s.client[c].start+modelTTL
	for i := range s.server {
		if p := &s.server[i].part[c]; p.share.toFill(false) && p.share.begin(false) {
			p.fill = toServer
		}
	}
	return s
}

// deliver adds the arrival of each message between a client and a server.
func (m *model) deliver(s modelState, c, n int) {
	p := s.server[n].part[c]
	for _, on := range []struct {
		message modelMessage
		arrives func(modelState, int, int) modelState
	}{
		{p.acquire, m.acquire},
		{p.renew, modelState.renewal},
		{p.fill, modelState.filling},
		{p.release, modelState.released},
	} {
		if on.message != nowhere {
			m.add(on.arrives(s, c, n))
		}
	}
}

// take does what acquire.lua and fill.lua do.
func (s *modelState) take(c, n int) modelMessage {
	v := &s.server[n]
	switch v.owner {
	case -1:
		v.owner, v.expires = int8(c), s.now+modelTTL
	case int8(c):
	default:
		return backNo
	}
	return backYes
}

func (m *model) acquire(s modelState, c, n int) modelState {
	p := &s.server[n].part[c]
	if p.acquire == toServer {
		if p.acquire = s.take(c, n); c == 0 {
			return s
		}
	}
	yes := p.acquire == backYes
	p.acquire, p.granted = nowhere, yes
	if p.end(yes) || m.lateRepliesGiveBack && yes && s.client[c].phase != modelAsking {
		p.release = toServer
	}
	return s
}

// end ends a call of a client that is followed, whose nonce is therefore not over.
func (p *modelPart) end(yes bool) (giveBack bool) {
	says := saysAbsent
	if yes {
		says = saysOurs
	}
	return p.share.end(false, says)
}

func (s modelState) renewal(c, n int) modelState {
	v := &s.server[n]
	p := &v.part[c]
	switch {
	case p.renew == toServer && v.owner == int8(c):
		v.expires, p.renew = s.now+modelTTL, backYes
	case p.renew == toServer:
		p.renew = backNo
	default:
		p.renewed, p.share.says = p.renew == backYes, saysAbsent
		if p.renewed {
			p.share.says = saysOurs
		}
		p.renew = nowhere
	}
	return s
}

func (s modelState) filling(c, n int) modelState {
	p := &s.server[n].part[c]
	p.fill = s.take(c, n)
	if p.end(p.fill == backYes) {
		p.release = toServer
	}
	p.fill = nowhere
	return s
}

func (s modelState) released(c, n int) modelState {
	v := &s.server[n]
	if v.owner == int8(c) {
		v.owner, v.expires = -1, 0
	}
	v.part[c].release = nowhere
	return s
}

func TestModel_AQuorumHasOneHolderHoweverLateAnswersAre(t *testing.T) {
	t.Parallel()
	m := &model{}
	if bad, found := m.search(); found {
		t.Errorf("two holders: %+v", bad)
	}
	t.Logf("%d states", len(m.seen))
	if len(m.seen) < 10_000 {
		t.Errorf("%d states are too few to say anything", len(m.seen))
	}
}

// The control: the model finds what C55 is about.
func TestModelControl_LateAnswersThatGiveBackMakeTwoHolders(t *testing.T) {
	t.Parallel()
	m := &model{lateRepliesGiveBack: true}
	if _, found := m.search(); !found {
		t.Error("the model does not see what the rule was changed for")
	}
}
