package advisory

import (
	"context"
	"slices"
	"sync"
)

// Turns lets the goroutines of one process come one after the other, per key, first come, first served. A session
// lock excludes no one in its own session, and a goroutine that waits in PostgreSQL holds a connection: so whoever has the turn asks the
// server, and the others wait here. The zero value is ready. It is safe for concurrent use.
type Turns struct {
	mu    sync.Mutex
	lines map[int64]*line
}

// line is of a key whose turn somebody has.
type line struct {
	waiting []chan struct{} // each closed when its turn has come
	handed  int             // how often the turn has been handed on since the line began
}

// Turn is what one goroutine has until Done.
type Turn struct {
	turns *Turns
	key   int64
	row   int // how many had the turn in this line before; 0 for who did not wait
	done  sync.Once
}

// Waited tells whether somebody else had the turn when it was asked for.
func (t *Turn) Waited() bool { return t.row > 0 }

// Take waits for the turn of a key. ctx bounds the wait, and its error is the only one.
func (t *Turns) Take(ctx context.Context, key int64) (*Turn, error) {
	turn, called := t.stand(key)
	if called == nil {
		return turn, nil
	}
	select {
	case <-called:
		turn.row = t.row(key)
		return turn, nil
	case <-ctx.Done():
		t.leave(turn, called)
		return nil, ctx.Err()
	}
}

// Try takes the turn of a key where nobody has it.
func (t *Turns) Try(key int64) (*Turn, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines[key] != nil {
		return nil, false
	}
	return t.begin(key), true
}

// stand takes the turn, or a place in the line; called is nil where it is the turn.
func (t *Turns) stand(key int64) (turn *Turn, called chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		return t.begin(key), nil
	}
	called = make(chan struct{})
	l.waiting = append(l.waiting, called)
	return &Turn{turns: t, key: key}, called
}

func (t *Turns) begin(key int64) *Turn {
	if t.lines == nil {
		t.lines = make(map[int64]*line)
	}
	t.lines[key] = &line{}
	return &Turn{turns: t, key: key}
}

func (t *Turns) row(key int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[key].handed
}

// leave gives up a place, or the turn where that came meanwhile.
func (t *Turns) leave(turn *Turn, called chan struct{}) {
	t.mu.Lock()
	l := t.lines[turn.key]
	i := -1
	if l != nil {
		i = slices.Index(l.waiting, called)
	}
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 {
		turn.Done()
	}
}

// Done hands the turn to the next. A second call does nothing.
func (t *Turn) Done() {
	t.done.Do(func() {
		t.turns.mu.Lock()
		defer t.turns.mu.Unlock()
		l := t.turns.lines[t.key]
		if len(l.waiting) == 0 {
			delete(t.turns.lines, t.key)
			return
		}
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.handed++
	})
}
