package faults

import (
	"errors"
	"net"
	"net/url"
	"sync"
	"time"
)

// Proxy relays TCP connections to one server until told to misbehave. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	// flow is read-locked around each write of relayed bytes, and locked during a hang: once Hang has returned, no
	// further byte arrives anywhere.
	flow sync.RWMutex

	mu       sync.Mutex
	upstream string
	links    map[*link]struct{}
	drops    []*drop
	cut      bool
	hung     bool
	latency  time.Duration
	closed   bool
}

// Start starts a proxy in front of upstream, a host:port. The caller must Close it.
func Start(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{upstream: upstream, listener: listener, links: map[*link]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

// Close ends the proxy with all its connections, even during a hang, and returns once all its goroutines have ended. A
// second call does nothing.
func (p *Proxy) Close() {
	_ = p.listener.Close() // fails if it was closed before
	p.mu.Lock()
	p.closed = true
	p.resetAll()
	p.resume()
	p.mu.Unlock()
	p.running.Wait()
}

// Addr returns the proxy's own address as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Through returns address, which is the server's, rewritten to lead through the proxy.
func (p *Proxy) Through(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("not an address") // the parser's error quotes it, password included
	}
	u.Host = p.Addr()
	return u.String(), nil
}

// Links returns how many connections the proxy relays now.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Redirect makes new connections go to another server, a host:port, and resets the existing ones, which lead to the
// previous server.
func (p *Proxy) Redirect(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
	p.resetAll()
}

// Cut resets all connections, and each new one as soon as it is made, until Heal. (Refusing new connections would mean
// giving up the port.)
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.resetAll()
}

// CutOnce resets all connections; new ones work.
func (p *Proxy) CutOnce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetAll()
}

// Hang holds all bytes back in both directions until Resume or Heal. Connections stay, and new ones can be made. Held
// bytes are not lost.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hung && !p.closed {
		p.hung = true
		p.flow.Lock()
	}
}

// Resume ends Hang.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume()
}

// Latency makes what clients send arrive d later, until Heal or another call. Bytes that are sent while others are
// delayed are delayed after them.
func (p *Proxy) Latency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// Heal ends Cut, Hang and Latency, and forgets drops that have not happened.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.latency, p.drops = false, 0, nil
	p.resume()
}

func (p *Proxy) resume() {
	if p.hung {
		p.hung = false
		p.flow.Unlock()
	}
}

func (p *Proxy) resetAll() {
	for l := range p.links {
		l.reset()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.server())
	if err != nil {
		reset(client)
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn), over: make(chan struct{})}
	if !p.add(l) {
		l.reset()
		return
	}
	defer p.remove(l)
	var both sync.WaitGroup
	both.Go(l.requests)
	both.Go(l.replies)
	both.Wait()
}

func (p *Proxy) server() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
