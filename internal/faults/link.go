package faults

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize = 32 << 10
	// writePatience bounds one write, so that a peer that reads nothing cannot make Hang wait forever.
	writePatience = 10 * time.Second
)

// link is one client's connection and the matching connection to the server.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	dropping       atomic.Pointer[drop] // what to do when the server answers
	once           sync.Once
	over           chan struct{} // closed with the connections

	mu      sync.Mutex
	request []byte // what the client has sent since the server last answered
	reply   []byte // what the server has sent since the client last did
}

// requests relays from client to server.
func (l *link) requests() {
	l.relay(l.client, l.server, func(chunk []byte) bool {
		d := l.proxy.claimDrop(l.sent(chunk), false)
		switch {
		case d == nil:
		case d.at == atAnswer:
			// The drop is set before the server has the request, so that its reply finds it.
			l.dropping.Store(d)
		default:
			l.drop(d)
			return false
		}
		return l.delay()
	})
}

// replies relays from server to client.
func (l *link) replies() {
	l.relay(l.server, l.client, func(chunk []byte) bool {
		reply := l.answered(chunk)
		d := l.dropping.Load()
		if d == nil {
			d = l.proxy.claimDrop(reply, true)
		}
		switch {
		case d == nil:
			return true
		case d.held != nil:
			return l.hold(d)
		}
		l.drop(d)
		return false
	})
}

// hold keeps a reply until it is released, and reports whether the link still stands.
func (l *link) hold(d *drop) bool {
	l.dropping.Store(nil)
	close(d.done)
	select {
	case <-d.held:
		return true
	case <-l.over:
		return false
	}
}

// sent records a chunk of a request and returns the request so far: it may come in pieces, and the words that a drop
// looks for may be split between two.
func (l *link) sent(chunk []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reply = l.reply[:0]
	l.request = grow(l.request, chunk)
	return l.request
}

// answered records a chunk of a reply and returns the reply so far. It forgets the request before the client has the
// reply and sends another, so that a drop cannot match a request sent before the drop was asked for.
func (l *link) answered(chunk []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request = l.request[:0]
	l.reply = grow(l.reply, chunk)
	return l.reply
}

// grow appends to a conversation and keeps the last chunk's worth of it.
func grow(text, chunk []byte) []byte {
	text = append(text, chunk...)
	return text[max(0, len(text)-chunkSize):]
}

// relay copies from one side to the other until either ends. It passes each chunk to look, which may end the relay.
func (l *link) relay(from, to *net.TCPConn, look func([]byte) bool) {
	buffer := make([]byte, chunkSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 && (!look(buffer[:n]) || !l.write(to, buffer[:n])) {
			break
		}
		if err != nil {
			break
		}
	}
	// A hang holds back the end of a connection like its bytes.
	l.proxy.flow.RLock()
	defer l.proxy.flow.RUnlock()
	l.close()
}

func (l *link) write(to *net.TCPConn, chunk []byte) bool {
	l.proxy.flow.RLock()
	defer l.proxy.flow.RUnlock()
	_ = to.SetWriteDeadline(time.Now().Add(writePatience))
	_, err := to.Write(chunk)
	return err == nil
}

// delay waits for the proxy's latency and reports whether the link still stands.
func (l *link) delay() bool {
	l.proxy.mu.Lock()
	d := l.proxy.latency
	l.proxy.mu.Unlock()
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.over:
		return false
	}
}

func (l *link) drop(d *drop) {
	l.close()
	close(d.done)
}

// close ends both connections in an orderly way: the client reads EOF.
func (l *link) close() {
	l.once.Do(func() {
		close(l.over)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// reset ends both connections at once: the client reads "connection reset".
func (l *link) reset() {
	l.once.Do(func() {
		close(l.over)
		reset(l.client)
		reset(l.server)
	})
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
