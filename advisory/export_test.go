package advisory

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// NewLockerOn makes a Locker whose clock of suspended time is as far ahead as boot says.
func NewLockerOn(pool *pgxpool.Pool, opts *Options, boot func() time.Duration) (*Locker, error) {
	l, err := NewLocker(pool, opts)
	if err == nil {
		host := l.now
		l.now = func() clock.Instant {
			now := host()
			now.Boot += boot()
			return now
		}
	}
	return l, err
}

// Users tells how many wait on the session or hold leases of it.
func (l *Locker) Users() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return 0
	}
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.session.users
}

// RegisterDuringUnlisten tells whether one who registers while UNLISTEN is on its way is heard of once it is answered.
func RegisterDuringUnlisten() bool {
	s := newSession(&Locker{})
	s.subscribed = true
	s.mu.Lock()
	c := s.unsubscription()
	s.mu.Unlock()
	s.register(1)
	s.settle(c, nil)
	for _, c := range s.calls {
		s.settle(c, nil)
	}
	return s.subscribed
}

// UnregisterAfterASuccessor tells whether a successor has word though one whose turn went on to him unregisters after he registered.
func UnregisterAfterASuccessor() bool {
	const key = 1
	s := newSession(&Locker{})
	first := s.register(key)
	second := s.register(key)
	s.unregister(key, first)
	s.told(strconv.Itoa(key))
	return len(second) == 1
}

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
	r.turn, _ = own.Try(ctx, r.key)
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
	_ = t.leave(turn, called)
}
