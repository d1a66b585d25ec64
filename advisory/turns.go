package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Turns lets the goroutines of one process come one after the other, per key, first come, first served. A session
// lock excludes no one in its own session, and a goroutine that waits in PostgreSQL holds a connection: so whoever has the turn asks the
// server, and the others wait here. The zero value is ready. It is safe for concurrent use.
//
// To have the turn is not to hold the lock. What whoever has it finds out about the lock goes to the others by [Turn.Met].
type Turns struct {
	mu    sync.Mutex
	lines map[int64]*line
}

// line is of a key whose turn somebody has.
type line struct {
	waiting []chan struct{} // each closed when its turn has come
	handed  int             // how often the turn has been handed on since the line began
	met     error           // last, by any who had the turn
	news    chan struct{}   // closed once who has the turn now has met something, or has it no more
	told    bool            // news is closed
}

// Turn is what one goroutine has until Done.
type Turn struct {
	turns *Turns
	key   int64

	// Under the mu of turns.
	row  int // how many had the turn in this line before; 0 for who did not wait
	met  error
	over bool
}

// Take waits for the turn of a key. ctx bounds the wait. Its error matches what ended ctx, and what was met last by those who had
// the turn; where they met nothing it matches ErrUnavailable, since nobody knows who holds the lock.
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
		return nil, errors.Join(met(t.leave(turn, called)), ctx.Err())
	}
}

func met(err error) error {
	if err == nil {
		return fmt.Errorf("%w: whoever asks for the lock here has had no answer yet", ErrUnavailable)
	}
	return err
}

// Try takes the turn of a key where nobody has it. Where somebody has, it waits until he has met something, and its error
// is that; ctx bounds the wait, and then the error is that of Take.
func (t *Turns) Try(ctx context.Context, key int64) (*Turn, error) {
	for {
		turn, news, err := t.tryOnce(key)
		if turn != nil || err != nil {
			return turn, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, errors.Join(met(nil), ctx.Err())
		}
	}
}

// tryOnce takes the turn, or returns what its holder has met, or where there will be news of that.
func (t *Turns) tryOnce(key int64) (*Turn, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	switch {
	case l == nil:
		return t.begin(key), nil, nil
	case l.told:
		return nil, nil, l.met
	}
	return nil, l.news, nil
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
	t.lines[key] = &line{news: make(chan struct{})}
	return &Turn{turns: t, key: key}
}

// enter has a turn that has come know what went before.
func (t *Turns) enter(turn *Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[turn.key]
	turn.row, turn.met = l.handed, l.met
}

// leave gives up a place, or the turn where that came meanwhile, and returns what was met last.
func (t *Turns) leave(turn *Turn, called chan struct{}) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[turn.key] // there is one: of who has the turn, or of this turn
	last := l.met
	if i := slices.Index(l.waiting, called); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else {
		turn.end()
	}
	return last
}

// Met tells the others what was met: a *HeldError, also once who has the turn holds the lock himself; an error that matches
// ErrUnavailable. The error is handed to others and must not be changed. After Done it tells nobody.
func (t *Turn) Met(err error) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.met = err
	if !t.over {
		l := t.turns.lines[t.key]
		l.met = err
		l.tell()
	}
}

// Last returns what was met last in this line, by this turn or those before it: nil where that is nothing.
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
	l := t.turns.lines[t.key]
	l.tell()
	if len(l.waiting) == 0 {
		delete(t.turns.lines, t.key)
		return
	}
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
	l.handed++
	l.news, l.told = make(chan struct{}), false
}

func (l *line) tell() {
	if !l.told {
		l.told = true
		close(l.news)
	}
}
