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

// wakeups is a manager's ear: one subscription, to one channel of its own, for all its waiters. It
// is there while somebody waits and a short while longer.
type wakeups struct {
	client  redis.UniversalClient
	channel string
	id      string // the manager's, 32 hexadecimal digits

	mu      sync.Mutex
	waiters map[string]*waiter // by id
	sub     *subscription      // nil while there is none
	idle    *time.Timer        // closes the subscription once nobody has waited for lingering
}

// lingering keeps the subscription between two waits that follow each other.
const lingering = 500 * time.Millisecond

// waiter is one call that waits for a lease.
type waiter struct {
	id   string             // 32 hexadecimal digits
	wake chan time.Duration // when to look, from now; holds the latest word
}

type subscription struct {
	pubsub *redis.PubSub // another one only under the wakeups' mu, and only by its listener
	ready  chan struct{} // closed once Redis has confirmed it
}

func newWakeups(client redis.UniversalClient, prefix string) *wakeups {
	id := token.NewNonce().Hex()
	return &wakeups{client: client, channel: prefix + ":wake:" + id, id: id, waiters: make(map[string]*waiter)}
}

// listening reports whether the subscription stands already.
func (w *wakeups) listening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sub != nil && isClosed(w.sub.ready)
}

// join registers a waiter and sees to the subscription, without keeping the caller. The channel it returns is
// closed once messages can arrive.
func (w *wakeups) join() (*waiter, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	me := &waiter{id: token.NewNonce().Hex(), wake: make(chan time.Duration, 1)}
	w.waiters[me.id] = me
	if w.idle != nil {
		w.idle.Stop()
	}
	if w.sub == nil {
		w.sub = &subscription{pubsub: w.client.Subscribe(context.Background()), ready: make(chan struct{})}
		go w.listen(w.sub)
	}
	return me, w.sub.ready
}

// part takes a waiter off the list.
func (w *wakeups) part(me *waiter) {
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

// close ends the subscription, if still nobody waits.
func (w *wakeups) close() {
	if pubsub := w.unused(); pubsub != nil {
		_ = pubsub.Close() // the listener ends with it
	}
}

// unused takes the subscription out of use, if nobody waits. Closing it may have to wait for a dial, which must not
// be done with mu held.
func (w *wakeups) unused() *redis.PubSub {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) > 0 || w.sub == nil {
		return nil
	}
	pubsub := w.sub.pubsub
	w.sub = nil
	return pubsub
}

// waits reports whether a waiter, by its whole name in the queue, still waits.
func (w *wakeups) waits(waiter string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiters[strings.TrimSuffix(waiter, w.id)] != nil
}

const (
	// healthCheck is how long a subscription may be silent before it is tried. The waiters' own looks find a
	// dead one too.
	healthCheck = time.Minute
	// resubscribeEvery is the pause between tries to reach a server that does not answer.
	resubscribeEvery = 100 * time.Millisecond
)

// listen passes messages on until the subscription is closed. go-redis connects again by itself; what was
// said meanwhile is lost, so after that everybody looks.
func (w *wakeups) listen(s *subscription) {
	first, tried := true, false
	w.subscribe(s)
	for {
		event, err := s.pubsub.ReceiveTimeout(context.Background(), healthCheck)
		switch e := event.(type) {
		case *redis.Subscription:
			if first {
				close(s.ready)
			} else {
				w.wakeAll()
			}
			first = false
		case *redis.Message:
			id, ms, _ := strings.Cut(e.Payload, " ")
			n, _ := strconv.ParseInt(ms, 10, 32)
			w.wakeOne(id, time.Duration(n)*time.Millisecond)
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

// renew replaces a connection that does not even answer when it is tried.
func (w *wakeups) renew(s *subscription) {
	_ = s.pubsub.Close()
	if w.replace(s) {
		w.subscribe(s)
	}
}

func (w *wakeups) replace(s *subscription) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub != s {
		return false
	}
	s.pubsub = w.client.Subscribe(context.Background())
	return true
}

// subscribe dials, which may take its time, and asks for the messages; go-redis remembers for what, so that the
// next Receive tries again where it failed.
func (w *wakeups) subscribe(s *subscription) { _ = s.pubsub.Subscribe(context.Background(), w.channel) }

func (w *wakeups) wakeOne(id string, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if me := w.waiters[id]; me != nil {
		me.tell(in)
	}
}

func (w *wakeups) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, me := range w.waiters {
		me.tell(0)
	}
}

// tell leaves word, the sooner one where there is some already. Called by one goroutine at a time.
func (me *waiter) tell(in time.Duration) {
	select {
	case before := <-me.wake:
		in = min(in, before)
	default:
	}
	me.wake <- in
}
