package faults

import (
	"bytes"
	"slices"
	"sync"

	"github.com/fencepost-pg/fencepost/internal/pgsession"
)

// moment is the point in a conversation at which a connection is dropped.
type moment int

const (
	atRequest  moment = iota // before the server has the request
	atAnswer                 // when the server answers the request
	atAnswerOf               // when the server's reply itself matches, whatever the request
)

// drop is one connection to be closed at a match.
type drop struct {
	match func(text []byte) bool
	at    moment
	done  chan struct{}
	held  chan struct{} // if not nil, the reply waits until it is closed, and the connection stays
}

// HoldNextReply lets the next matching request through to the server. It holds back the server's reply, and whatever
// follows it on that connection, until letGo is called. Other connections continue. The channel is closed once a reply
// is held. Otherwise it is like DropNextReply.
func (p *Proxy) HoldNextReply(match func(request []byte) bool) (held <-chan struct{}, letGo func()) {
	release := make(chan struct{})
	return p.await(&drop{match: match, at: atAnswer, held: release}), sync.OnceFunc(func() { close(release) })
}

// DropNextReply lets the next matching request through to the server. When the server has answered, it closes the
// client's connection instead of passing the reply on: the request is carried out, and the client cannot know. The
// channel is closed when that has happened. It happens once per call.
//
// Match sees what the client has sent on its connection since it was last answered, up to the last 32 KiB; nil matches
// anything. Connections start with the client library's own requests, so tests usually need [Containing].
func (p *Proxy) DropNextReply(match func(request []byte) bool) <-chan struct{} {
	return p.addDrop(match, atAnswer)
}

// DropNextRequest closes the client's connection at the next matching request, which the server never sees. Otherwise
// it is like DropNextReply.
func (p *Proxy) DropNextRequest(match func(request []byte) bool) <-chan struct{} {
	return p.addDrop(match, atRequest)
}

// DropNextReplyThat is DropNextReply that matches the reply instead of the request. It closes the client's connection
// at the next matching reply; the client has not received all of the part that matched. It is for requests that clients
// word in many ways and a server confirms in one, such as [Committed].
//
// Match sees what the server has sent on the connection since the client last sent something, up to the last 32 KiB;
// nil matches anything.
func (p *Proxy) DropNextReplyThat(match func(reply []byte) bool) <-chan struct{} {
	return p.addDrop(match, atAnswerOf)
}

// Containing matches anything that contains text, such as a command's name as the client library writes it, a script's
// hash or a nonce.
func Containing(text string) func([]byte) bool {
	return func(sent []byte) bool { return bytes.Contains(sent, []byte(text)) }
}

// Commit matches the request that ends a guarded transaction with its COMMIT, as the library sends it: the use of a
// prepared statement, or the end of a simple query. It does not match the message that prepares the statement, in which
// a length precedes the statement's name.
func Commit() func(request []byte) bool {
	prepared, simple := Containing("\x00"+pgsession.CommitName+"\x00"), Containing("; COMMIT\x00")
	return func(request []byte) bool { return prepared(request) || simple(request) }
}

// Committed matches PostgreSQL's reply to a COMMIT that was carried out. PostgreSQL answers ROLLBACK to the COMMIT of a
// failed transaction. The text is that of the whole CommandComplete message, so data is not mistaken for it by
// accident.
func Committed() func(reply []byte) bool { return Containing("C\x00\x00\x00\x0bCOMMIT\x00") }

func (p *Proxy) addDrop(match func([]byte) bool, at moment) <-chan struct{} {
	return p.await(&drop{match: match, at: at})
}

// await registers a drop for the next match.
func (p *Proxy) await(d *drop) <-chan struct{} {
	if d.match == nil {
		d.match = func([]byte) bool { return true }
	}
	d.done = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

// claimDrop returns, and uses up, the first drop that matches what a client has sent or what a server has answered.
func (p *Proxy) claimDrop(text []byte, answered bool) *drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.drops, func(d *drop) bool { return (d.at == atAnswerOf) == answered && d.match(text) })
	if i < 0 {
		return nil
	}
	d := p.drops[i]
	p.drops = slices.Delete(p.drops, i, i+1)
	return d
}
