package lease

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// subscriber receives a manager's messages through one subscription, to one channel of its own, for all its waiters.
// The subscription lasts while a call waits, and a short while longer.
type subscriber struct {
	client  redis.UniversalClient
	channel string
	id      string // the manager's, 32 hexadecimal digits

	mu      sync.Mutex
	waiters map[string]*waiter // by id
	sub     *subscription      // nil if there is none
	idle    *time.Timer        // closes the subscription once nobody has waited for lingering
}

// lingering is how long the subscription stays open between two waits.
const lingering = 500 * time.Millisecond

// waiter is one call that waits for a lease.
type waiter struct {
	nonce   token.Nonce
	id      string             // the nonce's 32 hexadecimal digits
	key     string             // of the lease that it waits for
	wake    chan time.Duration // delay until the next look; holds the latest message
	granted chan handed        // holds the latest grant made in this name
}

type subscription struct {
	pubsub *redis.PubSub // replaced only under the subscriber's mu, and only by its listener
	ready  chan struct{} // closed once Redis has confirmed it
}

func newSubscriber(client redis.UniversalClient, prefix string) *subscriber {
	id := token.NewNonce().Hex()
	return &subscriber{client: client, channel: prefix + ":wake:" + id, id: id, waiters: make(map[string]*waiter)}
}

// listening reports whether the subscription is established.
func (w *subscriber) listening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sub != nil && isClosed(w.sub.ready)
}

// join registers a waiter and starts the subscription if needed, without blocking the caller. The channel it returns is
// closed once messages can arrive.
func (w *subscriber) join(key string) (*waiter, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	me := &waiter{key: key, wake: make(chan time.Duration, 1), granted: make(chan handed, 1)}
	w.name(me)
	if w.idle != nil {
		w.idle.Stop()
	}
	if w.sub == nil {
		w.sub = &subscription{pubsub: w.client.Subscribe(context.Background()), ready: make(chan struct{})}
		go w.listen(w.sub)
	}
	return me, w.sub.ready
}

// name lists a waiter under a new name. Called with mu held.
func (w *subscriber) name(me *waiter) {
	me.nonce = token.NewNonce()
	me.id = me.nonce.Hex()
	w.waiters[me.id] = me
}

// rename gives a waiter another name. What is sent to the old one is not for it any more.
func (w *subscriber) rename(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, me.id)
	select {
	case <-me.granted:
	default:
	}
	w.name(me)
}

// part takes a waiter off the list.
func (w *subscriber) part(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, me.id)
	if len(w.waiters) > 0 {
		return
	}
	if w.idle == nil {
		w.idle = time.AfterFunc(lingering, w.close)
	} else {
		w.idle.Reset(lingering)
	}
}

// close ends the subscription if nobody waits.
func (w *subscriber) close() {
	if pubsub := w.unused(); pubsub != nil {
		_ = pubsub.Close() // the listener ends with it
	}
}

// unused takes the subscription out of use if nobody waits. Closing it may have to wait for a dial, which must not
// happen with mu held.
func (w *subscriber) unused() *redis.PubSub {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) > 0 || w.sub == nil {
		return nil
	}
	pubsub := w.sub.pubsub
	w.sub = nil
	return pubsub
}

// waits reports whether a waiter, given by its full name in the queue, still waits.
func (w *subscriber) waits(waiter string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiters[waiter[:len(w.id)]] != nil
}

const (
	// healthCheck is how long a subscription may be silent before it is pinged. The waiters' own looks also find a dead
	// one.
	healthCheck = time.Minute
	// resubscribeEvery is the pause between tries to reach a server that does not answer.
	resubscribeEvery = 100 * time.Millisecond
)

// listen passes messages on until the subscription is closed. go-redis reconnects by itself; messages sent meanwhile
// are lost, so after a reconnect every waiter looks.
func (w *subscriber) listen(s *subscription) {
	first, tried := true, false
	w.subscribe(s)
	for {
		event, err := s.pubsub.ReceiveTimeout(context.Background(), healthCheck)
		switch e := event.(type) {
		case *redis.Subscription:
			if first {
				close(s.ready)
			} else {
				w.wakeAll("")
			}
			first = false
		case *redis.Message:
			w.pass(e.Payload)
		}
		var silence net.Error
		switch {
		case err == nil:
			tried = false
		case errors.Is(err, redis.ErrClosed):
			return
		case errors.As(err, &silence) && silence.Timeout() && !tried:
			tried = true
			_ = s.pubsub.Ping(context.Background()) // should it fail, so does the next Receive
		case tried:
			tried = false
			w.renew(s)
		default:
			<-time.After(resubscribeEvery)
		}
	}
}

// renew replaces a connection that does not answer a ping.
func (w *subscriber) renew(s *subscription) {
	_ = s.pubsub.Close()
	if w.replace(s) {
		w.subscribe(s)
	}
}

func (w *subscriber) replace(s *subscription) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub != s {
		return false
	}
	s.pubsub = w.client.Subscribe(context.Background())
	return true
}

// subscribe dials, which may take a while, and subscribes. go-redis remembers the channel, so the next Receive retries
// if this failed.
func (w *subscriber) subscribe(s *subscription) {
	_ = s.pubsub.Subscribe(context.Background(), w.channel)
}

// pass delivers a message: "<waiter> <ms>" tells one waiter when to look; "<waiter> = <grant>" grants it the lease;
// "* <lease key>" is a roll call.
func (w *subscriber) pass(message string) {
	id, what, _ := strings.Cut(message, " ")
	if id == "*" {
		w.wakeAll(what)
		return
	}
	if text, grants := strings.CutPrefix(what, "= "); grants {
		if g, ok := parseHanded(text); ok {
			w.hand(id, g)
		}
		return
	}
	n, _ := strconv.ParseInt(what, 10, 32)
	w.wakeOne(id, time.Duration(n)*time.Millisecond)
}

func (w *subscriber) wakeOne(id string, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if me := w.waiters[id]; me != nil {
		me.tell(in)
	}
}

// hand passes a grant on. A second one under the same name replaces the first, whose time has run out.
func (w *subscriber) hand(id string, g handed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if me := w.waiters[id]; me != nil {
		select {
		case <-me.granted:
		default:
		}
		me.granted <- g
	}
}

// wakeAll wakes all waiters of a lease; "" means any lease.
func (w *subscriber) wakeAll(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, me := range w.waiters {
		if key == "" || me.key == key {
			me.tell(0)
		}
	}
}

// tell leaves a message; if one is there already, the sooner of the two stays. Called by one goroutine at a time.
func (me *waiter) tell(in time.Duration) {
	select {
	case before := <-me.wake:
		in = min(in, before)
	default:
	}
	me.wake <- in
}
