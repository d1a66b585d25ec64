// Package turns lets the goroutines of one process take turns at a lock that PostgreSQL grants to the process as a
// whole.
package turns

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-pg/fencepost/token"
)

// Turns serves the goroutines of one process one after the other, per key, first come, first served. A session lock
// does not exclude other goroutines of its session, and a goroutine that waits in PostgreSQL holds a connection. So the
// goroutine that has the turn asks the server, and the others wait here. The zero value is ready. It is safe for
// concurrent use.
//
// Having the turn is not holding the lock. The goroutine that has the turn passes its outcome to the others with
// [Turn.Met].
type Turns struct {
	mu     sync.Mutex
	queues map[int64]*queue
}

// queue is the queue of a key whose turn some goroutine has.
type queue struct {
	waiting []chan struct{} // each is closed when its turn has come
	handed  int             // how often the turn has been handed on since the queue began
	met     error           // the last outcome, of any goroutine that had the turn
	news    chan struct{}   // closed once the goroutine that has the turn has an outcome, or has ended its turn
	told    bool            // news is closed
}

// Turn is the turn of one goroutine, until Done.
type Turn struct {
	turns *Turns
	key   int64

	// Under the mu of turns.
	before int // how many had the turn since the queue began; 0 for a goroutine that did not wait
	met    error
	over   bool
}

// Take waits for the turn of a key. ctx bounds the wait. Its error matches the error of ctx and the last outcome of
// those who had the turn. If there is no outcome it matches ErrUnavailable, because nobody knows who holds the lock.
func (t *Turns) Take(ctx context.Context, key int64) (*Turn, error) {
	turn, called := t.stand(key)
	if called == nil {
		return turn, nil
	}
	select {
	case <-called:
		t.enter(turn)
		return turn, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", met(t.leave(turn, called)), ctx.Err())
	}
}

func met(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the goroutine that asks for the lock has no answer yet", token.ErrUnavailable)
	}
	return err
}

// Try takes the turn of a key if it is free. If another goroutine has the turn, Try waits until that goroutine has an
// outcome and returns it as its error. ctx bounds the wait; if ctx ends, the error is as with Take.
func (t *Turns) Try(ctx context.Context, key int64) (*Turn, error) {
	for {
		turn, news, err := t.tryOnce(key)
		if turn != nil || err != nil {
			return turn, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", met(nil), ctx.Err())
		}
	}
}

// tryOnce takes the turn, or returns the holder's outcome, or the channel that is closed when there is one.
func (t *Turns) tryOnce(key int64) (*Turn, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[key]
	switch {
	case q == nil:
		return t.begin(key), nil, nil
	case q.told:
		return nil, nil, q.met
	}
	return nil, q.news, nil
}

// stand takes the turn, or a place in the queue; called is nil if it took the turn.
func (t *Turns) stand(key int64) (turn *Turn, called chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[key]
	if q == nil {
		return t.begin(key), nil
	}
	called = make(chan struct{})
	q.waiting = append(q.waiting, called)
	return &Turn{turns: t, key: key}, called
}

func (t *Turns) begin(key int64) *Turn {
	if t.queues == nil {
		t.queues = make(map[int64]*queue)
	}
	t.queues[key] = &queue{news: make(chan struct{})}
	return &Turn{turns: t, key: key}
}

// enter gives a turn that has come what went before it.
func (t *Turns) enter(turn *Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[turn.key]
	turn.before, turn.met = q.handed, q.met
}

// leave gives up a place, or the turn if it came meanwhile, and returns the last outcome.
func (t *Turns) leave(turn *Turn, called chan struct{}) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[turn.key] // it exists: another goroutine has the turn, or this one has
	last := q.met
	if i := slices.Index(q.waiting, called); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else {
		turn.end()
	}
	return last
}

// Waiting returns how many goroutines wait for the turn of a key.
func (t *Turns) Waiting(key int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.queues[key]; q != nil {
		return len(q.waiting)
	}
	return 0
}

// Met passes an outcome to the others: a *HeldError, also once the goroutine that has the turn holds the lock itself;
// or an error that matches ErrUnavailable. Others receive the error, so it must not be changed. After Done it is passed
// to nobody.
func (t *Turn) Met(err error) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.met = err
	if !t.over {
		q := t.turns.queues[t.key]
		q.met = err
		q.tell()
	}
}

// Before returns how many goroutines had the turn, one after the other, before this one.
func (t *Turn) Before() int {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	return t.before
}

// Last returns the last outcome in this queue, of this turn or those before it; nil if there is none.
func (t *Turn) Last() error {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	return t.met
}

// Done hands the turn to the next. A second call does nothing.
func (t *Turn) Done() {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.end()
}

// end is Done with mu held.
func (t *Turn) end() {
	if t.over {
		return
	}
	t.over = true
	q := t.turns.queues[t.key]
	q.tell()
	if len(q.waiting) == 0 {
		delete(t.turns.queues, t.key)
		return
	}
	close(q.waiting[0])
	q.waiting = q.waiting[1:]
	q.handed++
	q.news, q.told = make(chan struct{}), false
}

func (q *queue) tell() {
	if !q.told {
		q.told = true
		close(q.news)
	}
}
