package advisory

import "context"

// Sabotage runs a statement on the locker's session, which somebody holds.
func (l *Locker) Sabotage(sql string) error {
	s := l.join()
	defer s.drop()
	c := &call{ask: func(k *link) error { _, err := k.ask(sql); return err }}
	s.mu.Lock()
	s.push(c)
	s.mu.Unlock()
	<-c.done
	return c.err
}

// LookWithoutATurn asks for a lock as Acquire would without a queue in the process.
func (l *Locker) LookWithoutATurn(ctx context.Context, resource string) (*Lease, error) {
	r, err := l.request(ctx, resource, nil)
	if err != nil {
		return nil, err
	}
	var own Turns
	r.turn, _ = own.Try(r.key)
	return l.stay(ctx, r)
}

// Waiting tells how many stand in line for a key.
func (t *Turns) Waiting(key int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if line := t.lines[key]; line != nil {
		return len(line.waiting)
	}
	return 0
}

// Waiting tells how many stand in line for a resource behind the one who has the turn.
func (l *Locker) Waiting(resource string) int {
	return l.turns.Waiting(Key(l.opts.Namespace, resource))
}

// LeaveAsCalled gives up a place in line just after the turn has come.
func (t *Turns) LeaveAsCalled(first *Turn, key int64) {
	turn, called := t.stand(key)
	first.Done()
	t.leave(turn, called)
}
