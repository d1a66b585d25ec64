package faults

import (
	"bytes"
	"slices"
)

// moment is where in a conversation a connection is dropped.
type moment int

const (
	atRequest  moment = iota // before the server has the request
	atAnswer                 // when the server answers the request
	atAnswerOf               // when the server's answer itself matches, whatever was asked
)

// drop is one connection to be closed at what matches.
type drop struct {
	match func(text []byte) bool
	at    moment
	done  chan struct{}
}

// DropNextReply lets the next request that matches through to the server, and when
// the server has answered it closes the client's connection instead of passing the
// answer on: the order is carried out, and the client cannot know. The channel is
// closed when that has happened. It happens once per call.
//
// Match sees what the client has sent on its connection since it was last answered,
// the last 32 KiB of it; nil matches anything. Connections start with requests of the client library's
// own, so tests will want [Containing].
func (p *Proxy) DropNextReply(match func(request []byte) bool) <-chan struct{} {
	return p.addDrop(match, atAnswer)
}

// DropNextRequest closes the client's connection at the next request that matches,
// which the server never sees. Otherwise it is like DropNextReply.
func (p *Proxy) DropNextRequest(match func(request []byte) bool) <-chan struct{} {
	return p.addDrop(match, atRequest)
}

// DropNextReplyThat is DropNextReply by the answer instead of the request: it closes the client's
// connection at the next answer that matches, of which the client has none of the part that
// matched, or not all. It is for orders that clients word in many ways and a server confirms in
// one, such as [Committed].
//
// Match sees what the server has sent on the connection since the client last did, the last
// 32 KiB of it; nil matches anything.
func (p *Proxy) DropNextReplyThat(match func(reply []byte) bool) <-chan struct{} {
	return p.addDrop(match, atAnswerOf)
}

// Containing matches what has text in it, such as a command's name as the
// client library writes it, a script's hash or a nonce.
func Containing(text string) func([]byte) bool {
	return func(sent []byte) bool { return bytes.Contains(sent, []byte(text)) }
}

// Committed matches PostgreSQL's answer to a COMMIT that was carried out; to one of a transaction
// that had failed PostgreSQL answers ROLLBACK. The text is that of the whole message
// CommandComplete, so that no data is taken for it by accident.
func Committed() func(reply []byte) bool { return Containing("C\x00\x00\x00\x0bCOMMIT\x00") }

func (p *Proxy) addDrop(match func([]byte) bool, at moment) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	d := &drop{match: match, at: at, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

// claimDrop returns the first drop that matches what a client has sent, or what a server has
// answered, which is then spent.
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
