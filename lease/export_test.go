package lease

import (
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// Timer is the timer of a test's clock.
type Timer = timer

// FakeClock lets a test set the time.
type FakeClock struct {
	NowFunc       func() (t time.Time, boot time.Duration)
	SinceWallFunc func() time.Duration
	AfterFuncFunc func(d time.Duration, f func()) Timer
}

func (c *FakeClock) now() clock.Instant {
	t, boot := c.NowFunc()
	return clock.Instant{Time: t, Wall: c.SinceWallFunc(), Boot: boot}
}

func (c *FakeClock) monotonic() time.Time { return c.now().Time }

func (c *FakeClock) afterFunc(d time.Duration, f func()) timer { return c.AfterFuncFunc(d, f) }

// WithClock returns opts with the test's clock.
func WithClock(opts Options, c *FakeClock) *Options {
	opts.clock = c
	return &opts
}

// KeysOf shows the keys of a resource.
func KeysOf(prefix, resource string) (leaseKey, counterKey string) {
	k := keysOf(prefix, resource)
	return k.lease, k.counter
}

// IsClosed reports whether a channel has been closed.
func IsClosed(c <-chan struct{}) bool { return isClosed(c) }

// Milliseconds exposes the value that is sent for a duration.
func Milliseconds(d time.Duration) int64 { return milliseconds(d) }

// RoundTrip exposes a manager's estimate of the longest round trip.
func RoundTrip(m *Manager) time.Duration { return m.backend.roundTrip() }

// TakeForDistant makes a manager believe that its server is far away. Its waiters then get long reservations.
func TakeForDistant(m *Manager) {
	if s, ok := m.backend.(*scripts); ok {
		s.trips.ended(time.Now().Add(-time.Second), nil)
	}
}

// HasCode exposes hasCode.
func HasCode(err error, code string) bool { return hasCode(err, code) }

// EditMany changes the scripts that ask for several resources in one call. It reports whether the text was there.
func EditMany(m *Manager, old, changed string) bool {
	s, ok := m.backend.(*scripts)
	if !ok {
		return false
	}
	there := false
	for _, one := range []**script{&s.grantingAll, &s.releasingAll} {
		if source := (*one).source; strings.Contains(source, old) {
			*one, there = newScript(strings.Replace(source, old, changed, 1)), true
		}
	}
	return there
}
