package lease

import (
	"sync"
	"time"
)

// gate keeps calls from piling up on a server that does not answer. It does not limit load: as long as the server
// answers anything, every call is let through, and the server queues those it has no time for yet.
type gate struct {
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
func (g *gate) enter(now time.Time) (p passage, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.under == 0:
		g.lastAnswer = now
	case g.under >= maxHanging && now.Sub(g.lastAnswer) >= g.patience:
		if now.Sub(g.lastAnswer) < 2*g.patience || g.probes == maxProbes {
			return passage{}, false
		}
		g.lastAnswer = now.Add(-g.patience)
		g.probes++
		p.probe = true
	}
	g.under++
	return p, true
}

// leave ends a call and records whether the server answered it.
func (g *gate) leave(now time.Time, p passage, answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.under--
	if p.probe {
		g.probes--
	}
	if answered {
		g.lastAnswer = now
	}
}
