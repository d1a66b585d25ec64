package advisory

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/internal/turns"
)

// NewLockerOn makes a Locker whose clock of suspended time is ahead by what boot returns.
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

// WithoutBound makes a Locker whose session may fill the server's lock table.
func WithoutBound(l *Locker) *Locker {
	l.capacity = func(int64) int64 { return math.MaxInt64 }
	return l
}

// Users returns how many wait on the session or hold leases of it.
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

// RegisterDuringUnlisten reports whether a waiter that registers while UNLISTEN is in flight gets messages once it is
// answered.
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

// UnregisterAfterASuccessor reports whether a successor gets messages even if its predecessor unregisters after the
// successor registered.
func UnregisterAfterASuccessor() bool {
	const key = 1
	s := newSession(&Locker{})
	first := s.register(key)
	second := s.register(key)
	s.unregister(key, first)
	s.told(strconv.Itoa(key))
	return len(second) == 1
}

// Sabotage runs a statement on the locker's session, which must be in use.
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
	var own turns.Turns
	r.turn, _ = own.Try(ctx, r.key)
	return l.stay(ctx, r)
}

// Waiting returns how many wait in the queue for a resource behind the one that has the turn.
func (l *Locker) Waiting(resource string) int {
	return l.turns.Waiting(Key(l.opts.Namespace, resource))
}
