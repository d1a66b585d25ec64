package lease

import (
	"context"
	"sync"
	"time"
)

// follow looks whether somebody came for a lease, once the reservation that a release left behind has run out. The head
// of the queue and the second waiter may both be silent, and the others are not notified. One look per resource follows
// the last of several releases, so a lease that is handed on all the time costs almost nothing.
type follow struct {
	timeout time.Duration
	look    func(context.Context, ident)

	mu   sync.Mutex
	next map[string]*pending // by lease key
}

// pending is a scheduled look.
type pending struct{ timer *time.Timer }

func newFollow(timeout time.Duration, look func(context.Context, ident)) *follow {
	return &follow{timeout: timeout, look: look, next: make(map[string]*pending)}
}

// followSlack gives the second waiter in the queue, which was notified as well, time to look first.
const followSlack = 50 * time.Millisecond

// up schedules a look at a lease that is reserved for the given time.
func (f *follow) up(id ident, reserved time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.next[id.keys.lease]; before != nil {
		before.timer.Stop()
	}
	p := &pending{}
	f.next[id.keys.lease] = p
	p.timer = time.AfterFunc(reserved+followSlack, func() {
		if f.due(id, p) {
			ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
			defer cancel()
			f.look(ctx, id)
		}
	})
}

// due removes a look that is to be taken now, and reports whether it was still the latest.
func (f *follow) due(id ident, p *pending) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next[id.keys.lease] != p {
		return false
	}
	delete(f.next, id.keys.lease)
	return true
}
