package worker

import (
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// Tally counts the events of all workers of a cell. It is safe for concurrent use: its Watch serves as that of several
// handles.
type Tally struct {
	mu   sync.Mutex
	sum  Sum
	open map[string]struct{} // operations that have begun and not ended
	last time.Time           // when an operation was accepted last, or the count began
	over bool                // the time in which operations are expected
}

// Sum is what a Tally has counted.
type Sum struct {
	Operations int64 // that were begun
	Accepted   int64 // operations
	Refused    int64 // attempts
	// RefusedByPostgres are those of them that PostgreSQL refused.
	RefusedByPostgres int64
	// Unknown are operations that were not accepted in the end and may have been done: an attempt's outcome was unknown,
	// or the worker ended in the middle.
	Unknown int64
	// Doubts are attempts whose outcome was unknown, and Failures those that a server did not answer, or not in time.
	Doubts, Failures int64
	// Unavailable is the longest time in which no operation was accepted, between Begin and End.
	Unavailable  time.Duration
	Acknowledged []work.Acknowledged
}

// NewTally counts from now on.
func NewTally() *Tally { return &Tally{open: make(map[string]struct{}), last: time.Now()} }

// Begin says that operations are expected from now on; the time before does not count as unavailable.
func (t *Tally) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.sum.Unavailable, t.over = time.Now(), 0, false
}

// End says that operations are not expected any more. Those that end all the same are counted.
func (t *Tally) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lapse(time.Now())
	t.over = true
}

// lapse notes how long no operation was accepted.
func (t *Tally) lapse(now time.Time) {
	if !t.over {
		t.sum.Unavailable = max(t.sum.Unavailable, now.Sub(t.last))
		t.last = now
	}
}

// Watch counts an event.
func (t *Tally) Watch(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.What {
	case IsBegun:
		t.sum.Operations++
		t.open[e.ID] = struct{}{}
	case IsAttempt:
		t.attempt(&e)
	case IsEnded:
		delete(t.open, e.ID)
		switch {
		case e.Outcome == mode.Accepted:
			t.sum.Accepted++
			t.sum.Acknowledged = append(t.sum.Acknowledged, work.Acknowledged{ID: e.ID, Rows: e.Rows})
			t.lapse(e.At)
		case e.Doubt:
			t.sum.Unknown++
		}
	case IsReady, IsBetween, IsStopped, IsFailed:
	}
}

func (t *Tally) attempt(e *Event) {
	switch e.Outcome {
	case mode.Refused:
		t.sum.Refused++
		if e.ByPostgres {
			t.sum.RefusedByPostgres++
		}
	case mode.Unknown:
		t.sum.Doubts++
	case mode.Unavailable:
		t.sum.Failures++
	case mode.Accepted, mode.Broken:
	}
}

// Sum returns what has been counted until now.
func (t *Tally) Sum() Sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sum
	s.Unknown += int64(len(t.open))
	s.Acknowledged = append([]work.Acknowledged(nil), t.sum.Acknowledged...)
	if !t.over {
		s.Unavailable = max(s.Unavailable, time.Since(t.last))
	}
	return s
}
