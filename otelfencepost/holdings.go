package otelfencepost

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-pg/fencepost"
)

// mostEnded is how many resources that this process has held are remembered, for hand-offs.
const mostEnded = 4096

// holding is one lease.
type holding struct {
	token fencepost.Token
	asked time.Time         // when its acquire began
	since time.Time         // when it was acquired
	until time.Time         // when it was released; zero before, and after a loss
	span  trace.SpanContext // of its acquire
	over  bool              // its end was told
}

// history is what is known of a resource: the lease that is held, and the one before it.
type history struct {
	now, before holding // with token 0 if there is none
	queued      bool    // among those whose lease has ended
}

// holdings are the leases that this process holds. Events tell of each lease's begin and end; but the end may be told
// late, after the next begin, or never: a release that did not reach Redis is told by no event.
//
// Invariant: at most one lease of a resource counts as held. The next grant ends the count of the one before, because
// tokens rise: of two leases, the one with the lower token is over.
type holdings struct {
	mu        sync.Mutex
	resources map[string]*history
	ended     []string // the resources whose lease has ended, oldest first
}

// handOff is the time between a release and the next grant, and the acquire span of the holder that released. known is
// false if the acquire did not wait for that release.
type handOff struct {
	known bool
	took  time.Duration
	from  trace.SpanContext
}

// handedOver returns the hand-off from the lease before to the lease that is held. A grant follows the release that it
// waited for. It may look earlier by as much as the handlers were called late, so the time is at least 0.
func (h *history) handedOver() handOff {
	at := h.before.until
	if h.now.token == 0 || at.IsZero() || at.Before(h.now.asked) {
		return handOff{}
	}
	return handOff{known: true, took: max(0, h.now.since.Sub(at)), from: h.before.span}
}

// begin adds a lease. more is by how much the number of held leases rises: 0 if a lease that was counted has ended
// unnoticed.
func (h *holdings) begin(resource string, l holding) (more int64, handed handOff) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.resources[resource]
	if r == nil {
		r = &history{}
		h.resources[resource] = r
	}
	more = 1
	if r.now.token != 0 {
		r.before, more = r.now, 0
	}
	r.now = l
	return more, r.handedOver()
}

// name adds the span of the acquire to a lease, for links.
func (h *holdings) name(resource string, tok fencepost.Token, span trace.SpanContext) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.resources[resource]; r != nil && r.now.token == tok {
		r.now.span = span
	}
}

// end takes out a lease that was released after held, or lost if held is nil. A token that was raised while the lease
// was held is above the one at its grant. less is by how much the number of held leases falls. It returns nil if no
// begin was told.
func (h *holdings) end(
	resource string, tok fencepost.Token, held *time.Duration,
) (l *holding, handed handOff, less int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.resources[resource]
	if r == nil {
		return nil, handOff{}, 0
	}
	if r.now.token != 0 && tok >= r.now.token {
		r.before, r.now, less = r.now, holding{}, 1
		h.remember(resource, r)
	} else if r.before.token == 0 || r.before.over || tok < r.before.token {
		return nil, handOff{}, 0
	}
	r.before.over = true
	if held != nil {
		r.before.until = r.before.since.Add(*held)
	}
	ended := r.before
	return &ended, r.handedOver(), less
}

// remember keeps what is known of a resource whose lease has ended, and forgets the oldest beyond mostEnded.
func (h *holdings) remember(resource string, r *history) {
	if !r.queued {
		h.ended, r.queued = append(h.ended, resource), true
	}
	if len(h.ended) <= mostEnded {
		return
	}
	oldest := h.resources[h.ended[0]]
	if oldest.queued = false; oldest.now.token == 0 {
		delete(h.resources, h.ended[0])
	}
	h.ended = h.ended[1:]
}
