package lease

import (
	"context"
	"sync"

	"github.com/fencepost-pg/fencepost/token"
)

// shares is what a quorum knows about one nonce: one state per server, and whether the nonce is still in use. Only this
// type decides whether a share is kept or given back. It decides by what holds when a reply comes in, not by what held
// when the request was sent. A nil *shares belongs to a lease over a single Redis.
//
//	a share:   unasked ──▶ asked ──▶ ours, absent, another's or unknown ──▶ asked (to be filled) ──▶ …
//	a nonce:   in use (being acquired, held) ──▶ over (refused, abandoned, released, lost)
//
// Invariants:
//   - A release is sent only once the nonce is over, that is, when no lease is or ever will be held under it. So no
//     reply, however late, takes back a share that a grant or a renewal counted.
//   - A call that may make a share is sent between begin and end, one at a time for each server, and never once the
//     nonce is over. If the nonce is over by the time the call ends, the call itself gives back what it may have made.
type shares struct {
	mu     sync.Mutex
	over   bool
	token  token.Token // the lease's; 0 until it is known
	cancel context.CancelFunc
	label  string
	nodes  []share
}

// share is the state of one server.
type share struct {
	asked bool // a call that may make it is in flight
	sent  bool // such a call was ever sent: there may be a share to give back
	says  said
}

// said is what a server reported last.
type said uint8

const (
	saysUnknown said = iota
	saysOurs
	saysAbsent
	saysAnothers
)

// begin reports whether to send a call that may make the share, and records it.
func (s *share) begin(over bool) bool {
	if over || s.asked {
		return false
	}
	s.asked, s.sent = true, true
	return true
}

// end records how that call ended, and reports whether the caller has to give the share back.
func (s *share) end(over bool, says said) (giveBack bool) {
	s.asked, s.says = false, says
	return over && (says == saysOurs || says == saysUnknown)
}

// toFill reports whether the server is known to lack the share and is not being asked for it.
func (s *share) toFill(over bool) bool { return !over && !s.asked && s.says == saysAbsent }

// newShares returns the shares of a nonce that is about to be requested. Calls for it run under the returned context.
// It outlives ctx, because a grant may be of use after its caller has moved on, and it ends with the nonce.
func newShares(ctx context.Context, nodes int, label string) (context.Context, *shares) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return ctx, &shares{cancel: cancel, label: label, nodes: make([]share, nodes)}
}

func (s *shares) begin(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].begin(s.over)
}

func (s *shares) end(node int, says said) (giveBack bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].end(s.over, says)
}

// asked reports whether a server was ever sent a call that may have made its share, and whether one is in flight now;
// end handles what that one makes.
func (s *shares) asked(node int) (ever, now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].sent, s.nodes[node].asked
}

func (s *shares) toFill(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[node].toFill(s.over)
}

// giveUp marks the nonce as over, for good. It sends nothing.
func (s *shares) giveUp() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.cancel() // calls that have not been sent are not sent
}

// setToken notes the lease's token.
func (s *shares) setToken(t token.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = t
}

// held returns the lease's token (0 before it is known) and whether the nonce is still in use.
func (s *shares) held() (t token.Token, of bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token, !s.over
}

// count returns how many servers last said that they have the share, and how many servers there are.
func (s *shares) count() (have, of int) {
	if s == nil {
		return 1, 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n.says == saysOurs {
			have++
		}
	}
	return have, len(s.nodes)
}

// hear records what a server says about its share in reply to another script.
func (s *shares) hear(node int, answer string, err error) {
	says := saysUnknown
	switch {
	case err != nil:
	case answer == replyRenewed || answer == replyReissued:
		says = saysOurs
	case answer == replyGone || answer == replyReleased:
		says = saysAbsent
	case answer == replyTaken:
		says = saysAnothers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node].says = says
}
