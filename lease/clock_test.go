package lease_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
)

// handClock moves only when told to, each of its clocks separately. Its timers never fire, so a lease's answers come
// from its own reading of the clocks.
type handClock struct {
	mu         sync.Mutex
	monotonic  time.Time
	wall, boot time.Duration // ahead of the monotonic clock
}

func newHandClock() *handClock { return &handClock{monotonic: time.Now()} }

func (c *handClock) fake() *lease.FakeClock {
	return &lease.FakeClock{
		NowFunc: func() (time.Time, time.Duration) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.monotonic, time.Hour + c.boot
		},
		SinceWallFunc: func() time.Duration {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.wall
		},
		AfterFuncFunc: func(time.Duration, func()) lease.Timer { return stillTimer{} },
	}
}

type stillTimer struct{}

func (stillTimer) Reset(time.Duration) bool { return true }
func (stillTimer) Stop() bool               { return true }

func (c *handClock) move(monotonic, wall, boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.monotonic = c.monotonic.Add(monotonic)
	c.wall += wall
	c.boot += boot
}

// firingClock is a handClock whose timers fire when it is moved past them.
type firingClock struct {
	*handClock
	set    chan struct{} // receives one for each timer that is set
	timers map[*handTimer]time.Time
}

func newFiringClock() *firingClock {
	return &firingClock{handClock: newHandClock(), set: make(chan struct{}, 64), timers: map[*handTimer]time.Time{}}
}

func (c *firingClock) fake() *lease.FakeClock {
	fake := c.handClock.fake()
	fake.AfterFuncFunc = func(d time.Duration, f func()) lease.Timer {
		t := &handTimer{clock: c, f: f}
		t.Reset(d)
		return t
	}
	return fake
}

// advance moves all clocks and returns how many timers have fired.
func (c *firingClock) advance(d time.Duration) (fired int) {
	c.move(d, 0, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, at := range c.timers {
		if !at.After(c.monotonic) {
			delete(c.timers, t)
			fired++
			go t.f()
		}
	}
	return fired
}

// handTimer is a timer of a firingClock.
type handTimer struct {
	clock *firingClock
	f     func()
}

// Reset sets the timer again.
func (t *handTimer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, was := t.clock.timers[t]
	t.clock.timers[t] = t.clock.monotonic.Add(d)
	t.clock.set <- struct{}{}
	return was
}

// Stop keeps the timer from firing.
func (t *handTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, was := t.clock.timers[t]
	delete(t.clock.timers, t)
	return was
}

// I6: the lease ends by the most pessimistic of this host's clocks.
func TestInvariant6_TheMostPessimisticClockCounts(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	for name, c := range map[string]struct {
		monotonic, wall, boot time.Duration
		held                  bool
		reason                lease.Reason
	}{
		"nothing moves":                {0, 0, 0, true, ""},
		"just in time":                 {ttl - lease.DriftMargin(ttl) - 1, 0, 0, true, ""},
		"at the deadline":              {ttl - lease.DriftMargin(ttl), 0, 0, false, lease.ReasonExpired},
		"the wall clock steps forward": {time.Second, ttl, 0, false, lease.ReasonClock},
		"the wall clock steps back":    {time.Second, -time.Hour, 0, true, ""},
		"back, and the time passes":    {ttl, -time.Hour, 0, false, lease.ReasonExpired},
		"the machine was suspended":    {time.Second, 0, ttl, false, lease.ReasonClock},
		"years ahead":                  {0, 50 * 365 * 24 * time.Hour, 0, false, lease.ReasonClock},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newHandClock()
			b := setup(t, lease.Options{})
			m, err := lease.NewManager(b.rdb, lease.WithClock(lease.Options{Prefix: b.prefix}, clock.fake()))
			if err != nil {
				t.Fatal(err)
			}
			l, err := m.TryAcquire(t.Context(), "r", ttl, nil)
			if err != nil {
				t.Fatal(err)
			}
			clock.move(c.monotonic, c.wall, c.boot)
			if held := l.Err() == nil; held != c.held || held != (l.Remaining() > 0) || held != (l.Context().Err() == nil) {
				t.Errorf("held %v, want %v; %v remain; %v", held, c.held, l.Remaining(), l.Err())
			}
			if !c.held {
				wantReason(t, l.Err(), c.reason)
				wantErr(t, context.Cause(l.Context()), lease.ErrLost)
				wantErr(t, l.Renew(t.Context(), ttl), lease.ErrLost)
				clock.move(-c.monotonic, -c.wall, -c.boot)
				wantErr(t, l.Err(), lease.ErrLost) // once over, it stays over
			}
			if err := l.Release(t.Context()); (err == nil) != c.held {
				t.Errorf("release: %v", err)
			}
		})
	}
}
