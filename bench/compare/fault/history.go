package fault

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
)

// History is what the workers of a cell have done. It is safe for concurrent use.
type History struct {
	mu       sync.Mutex
	rows     map[string][]int64 // of operations that have begun, by their id
	begun    map[int][]int64    // the rows of each worker's latest operation
	accepted []acceptance
	changed  chan struct{} // closed at the next change
}

// acceptance is an operation whose worker was told that it is done.
type acceptance struct {
	worker int
	rows   []int64
	at     time.Time
}

// NewHistory returns an empty history.
func NewHistory() *History {
	return &History{rows: make(map[string][]int64), begun: make(map[int][]int64), changed: make(chan struct{})}
}

// Add records an event of a worker.
func (h *History) Add(number int, e worker.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.What == worker.IsBegun {
		h.rows[e.ID], h.begun[number] = e.Rows, e.Rows
	}
	if e.What != worker.IsEnded || e.Outcome != mode.Accepted {
		return
	}
	h.accepted = append(h.accepted, acceptance{worker: number, rows: e.Rows, at: e.At})
	close(h.changed)
	h.changed = make(chan struct{})
}

// rowsOf returns the rows of an operation that has begun.
func (h *History) rowsOf(id string) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rows[id]
}

// ahead returns the number of the worker that has got furthest, by the rows of its latest operation. If no worker is
// ahead of the given one, it returns the given number.
func (h *History) ahead(number int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other, rows := range h.begun {
		if slices.Compare(rows, h.begun[number]) > 0 {
			number = other
		}
	}
	return number
}

// Times returns how often an operation on one of the rows was accepted, of the worker with a number or of all workers
// (-1). If rows is empty, every row counts.
func (h *History) Times(number int, rows []int64) int {
	return h.count(func(a *acceptance) bool { return (number < 0 || a.worker == number) && meet(a.rows, rows) })
}

// since returns how often others were accepted with the rows that a worker has in hand since it said so.
func (h *History) since(e worker.Event, number int) int {
	return h.count(func(a *acceptance) bool { return a.worker != number && a.at.After(e.At) && meet(a.rows, e.Rows) })
}

func (h *History) count(wanted func(*acceptance) bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.accepted {
		if wanted(&h.accepted[i]) {
			n++
		}
	}
	return n
}

func meet(rows, others []int64) bool {
	return len(others) == 0 || slices.ContainsFunc(rows, func(row int64) bool { return slices.Contains(others, row) })
}

// Await waits until a condition holds, and checks it at each change. The error is the cause of ctx.
func (h *History) Await(ctx context.Context, so func() bool) error {
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		if so() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
