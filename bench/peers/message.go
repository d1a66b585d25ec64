package peers

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Message is no lock library: it is the least that a hand-off through Redis can take. The queue is in this process, and
// all that travels is one PUBLISH to the subscription of the next in line.
const Message = "one PUBLISH, by hand"

// OfMessage is the peer of that name.
func OfMessage(s Servers) Peer {
	line := &line{}
	return Peer{Name: Message, Open: func(ctx context.Context, goroutines int) ([]Client, error) {
		return s.openMessage(ctx, line, goroutines)
	}}
}

// line is who waits, in the order in which they came.
type line struct {
	mu      sync.Mutex
	opened  int
	held    bool
	waiting []string // their channels
}

// enter takes the lock, or else gets in line.
func (l *line) enter(channel string) (taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		l.held = true
		return true
	}
	l.waiting = append(l.waiting, channel)
	return false
}

// next returns who gets the lock now; "" if nobody waits.
func (l *line) next() (channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.held = false
		return ""
	}
	channel, l.waiting = l.waiting[0], l.waiting[1:]
	return channel
}

func (l *line) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
	return l.opened
}

// messenger is a client with a subscription.
type messenger struct {
	line    *line
	client  *redis.Client
	sub     *redis.PubSub
	channel string
	close   func() error
}

func (s Servers) openMessage(ctx context.Context, l *line, goroutines int) ([]Client, error) {
	client, err := newRedis(s.RedisURL)
	if err != nil {
		return nil, err
	}
	once := sync.OnceValue(client.Close)
	var clients []Client
	for range goroutines {
		channel := s.Prefix + ":turn:" + strconv.Itoa(l.number())
		m := &messenger{line: l, client: client, sub: client.Subscribe(ctx, channel), channel: channel, close: once}
		clients = append(clients, m)
		if _, err := m.sub.Receive(ctx); err != nil { // it is subscribed
			return nil, errors.Join(err, CloseAll(clients))
		}
	}
	return clients, nil
}

func (m *messenger) Lock(ctx context.Context, _ string) (Unlock, error) {
	if !m.line.enter(m.channel) {
		if _, err := m.sub.ReceiveMessage(ctx); err != nil {
			return nil, err
		}
	}
	return m.unlock, nil
}

func (m *messenger) unlock(ctx context.Context) error {
	next := m.line.next()
	if next == "" {
		return nil
	}
	return m.client.Publish(ctx, next, "").Err()
}

func (m *messenger) Close() error { return errors.Join(m.sub.Close(), m.close()) }
