// Package relay puts a server farther away.
//
// A [Relay] is a TCP relay on 127.0.0.1 that passes on each byte a fixed time after its arrival, in both directions. It
// delays and does not throttle: bytes that arrive while others are under way do not wait for them.
//
// The relay of internal/faults is for faults: it waits before it reads on, so what is pipelined would wait once for
// each piece. On Linux, Go's own timers are late by up to a millisecond in a process that is otherwise idle, which is
// more than the delays that are wanted here; so this package asks the kernel for its timers.
package relay

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Relay relays TCP connections to one server. It is safe for concurrent use.
type Relay struct {
	upstream string
	delay    time.Duration
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]struct{}
	closed bool
}

// Start starts a relay in front of upstream, a host:port. It adds delay to each direction, so twice that to a round
// trip. The caller must Close it.
func Start(upstream string, delay time.Duration) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	r := &Relay{upstream: upstream, delay: delay, listener: listener, links: map[*link]struct{}{}}
	r.running.Go(r.accept)
	return r, nil
}

// Addr returns the relay's own address as host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Close ends the relay with all its connections, and returns once its goroutines have ended. A second call does
// nothing.
func (r *Relay) Close() {
	_ = r.listener.Close() // fails if it was closed before
	r.mu.Lock()
	r.closed = true
	for l := range r.links {
		l.close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.running.Go(func() { r.serve(client) })
	}
}

func (r *Relay) serve(client net.Conn) {
	server, err := net.Dial("tcp", r.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	defer l.close()
	if !r.add(l) {
		return
	}
	defer r.remove(l)
	var both sync.WaitGroup
	both.Go(func() { l.pass(client, server, r.delay) })
	both.Go(func() { l.pass(server, client, r.delay) })
	both.Wait()
}

func (r *Relay) add(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.links[l] = struct{}{}
	return true
}

func (r *Relay) remove(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}
