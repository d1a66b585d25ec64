package lease

import (
	"sync"
	"time"
)

// breaker keeps calls from piling up on a server that does not answer. It does not limit load: as long as the server
// answers anything, every call is let through, and the server queues those it has no time for yet.
type breaker struct {
	patience time.Duration

	mu         sync.Mutex
	under      int       // calls in flight
	probes     int       // those among them that probe whether the server answers again
	lastAnswer time.Time // when the server last answered, or was first called
}

// passage is what a call gets from enter and passes to leave.
type passage struct{ probe bool }

// maxHanging bounds the calls in flight on a server that has been silent for patience; further calls treat it as down
// at once.
const maxHanging = 64

// maxProbes bounds the calls that probe whether a silent server answers again. They may hang for much longer than
// patience, and must not pile up either.
const maxProbes = 16

// enter reports whether a call may go; a call that went then calls leave. While calls are refused, one per patience
// goes through, to probe whether the server answers again.
func (b *breaker) enter(now time.Time) (p passage, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.under == 0:
		b.lastAnswer = now
	case b.under >= maxHanging && now.Sub(b.lastAnswer) >= b.patience:
		if now.Sub(b.lastAnswer) < 2*b.patience || b.probes == maxProbes {
			return passage{}, false
		}
		b.lastAnswer = now.Add(-b.patience)
		b.probes++
		p.probe = true
	}
	b.under++
	return p, true
}

// leave ends a call and records whether the server answered it.
func (b *breaker) leave(now time.Time, p passage, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under--
	if p.probe {
		b.probes--
	}
	if answered {
		b.lastAnswer = now
	}
}
