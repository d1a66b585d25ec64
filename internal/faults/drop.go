package faults

import (
	"bytes"
	"slices"
)

// drop is one connection to be closed at a request that matches.
type drop struct {
	match    func(request []byte) bool
	answered bool // after the server's answer, rather than before it has the request
	done     chan struct{}
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
	return p.addDrop(match, true)
}

// DropNextRequest closes the client's connection at the next request that matches,
// which the server never sees. Otherwise it is like DropNextReply.
func (p *Proxy) DropNextRequest(match func(request []byte) bool) <-chan struct{} {
	return p.addDrop(match, false)
}

// Containing matches requests with text in them, such as a command's name as the
// client library writes it, a script's hash or a nonce.
func Containing(text string) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

func (p *Proxy) addDrop(match func([]byte) bool, answered bool) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	d := &drop{match: match, answered: answered, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.done
}

// claimDrop returns the first drop that matches, which is then spent.
func (p *Proxy) claimDrop(sent []byte) *drop {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.drops, func(d *drop) bool { return d.match(sent) })
	if i < 0 {
		return nil
	}
	d := p.drops[i]
	p.drops = slices.Delete(p.drops, i, i+1)
	return d
}
