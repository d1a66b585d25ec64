package lease

import (
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// trips estimates how long a server takes to answer, from the duration of its calls. It is safe for concurrent use.
type trips struct {
	mu           sync.Mutex
	smooth, vary time.Duration // as TCP measures its round trips (RFC 6298); 0 before the first
}

const (
	// shortestReservation is the least time that a waiter has to come for a lease: processes are not always scheduled
	// at once.
	shortestReservation = 200 * time.Millisecond
	// longestReservation bounds what one waiter with a slow network costs those behind it.
	longestReservation = 10 * time.Second
	// surprise is the most that a single call may add to the estimate. A longer call more likely means a server that
	// was stopped, or a go-redis try that failed before the next was answered, than a server that has moved away. A
	// server that did move away keeps answering slowly, and the estimate can double each time.
	surprise = 500 * time.Millisecond
)

// ended records a call that began at the given time, if the server answered, even with an error.
func (t *trips) ended(began time.Time, err error) {
	if err != nil && !isAnswer(err) {
		return
	}
	took := max(0, time.Since(began)) // began may have been adjusted by another clock
	t.mu.Lock()
	defer t.mu.Unlock()
	took = min(took, max(surprise, 2*(t.smooth+4*t.vary)))
	if t.smooth == 0 {
		t.smooth, t.vary = took, took/2
		return
	}
	t.vary += ((took - t.smooth).Abs() - t.vary) / 4
	t.smooth += (took - t.smooth) / 8
}

func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// longest is the longest that a round trip takes, by the estimate. It is 0 before the first call.
func (t *trips) longest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.smooth + 4*t.vary
}

// long reports whether a round trip takes a significant share of a time span.
func (t *trips) long(span time.Duration) bool { return t.longest() > span/10 }

// reservation is the time a waiter needs to come for a lease: a message reaches it and its acquire comes back, which
// may take a second round trip if the server has not seen the script.
func (t *trips) reservation() time.Duration {
	return min(max(2*t.longest(), shortestReservation), longestReservation)
}

func (s *scripts) roundTrip() time.Duration { return s.trips.longest() }
