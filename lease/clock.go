package lease

import (
	"sync/atomic"
	"time"
)

// clock is what this package knows of time; tests put their own in its place.
type clock interface {
	now() instant
	// monotonic is the monotonic part of now alone.
	monotonic() time.Time
	// afterFunc calls f in a goroutine of its own once d has passed on the monotonic clock.
	afterFunc(d time.Duration, f func()) timer
}

type timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// instant is one reading of every clock this host has.
type instant struct {
	time time.Time     // its monotonic reading counts
	wall time.Duration // since an arbitrary moment, by the clock on the wall
	boot time.Duration // since boot, suspended time included; 0 where the system has no such clock
}

// since returns how long ago start was: the most that any clock says, and what the monotonic clock
// alone says. Go's monotonic clock stands still while a virtual machine is suspended, and the
// wall clock may be stepped; the lease must end by the most pessimistic of them, and no decision
// compares clocks of two hosts.
func (i instant) since(start instant) (longest, monotonic time.Duration) {
	monotonic = i.time.Sub(start.time)
	return max(monotonic, i.wall-start.wall, i.boot-start.boot), monotonic
}

// systemClock reads this host's clocks. It is safe for concurrent use.
type systemClock struct {
	began     time.Time        // what monotonic durations count from
	onTheWall func() time.Time // nil: the time that comes with the monotonic reading
	suspended suspension
}

func newSystemClock(wall func() time.Time) *systemClock {
	return &systemClock{began: time.Now(), onTheWall: wall, suspended: suspension{sinceBoot: sinceBoot}}
}

func (c *systemClock) now() instant {
	now := time.Now()
	wall, monotonic := time.Duration(now.UnixNano()), now.Sub(c.began)
	if c.onTheWall != nil {
		wall = time.Duration(c.onTheWall().UnixNano())
	}
	return instant{time: now, wall: wall, boot: monotonic + c.suspended.length(monotonic, wall)}
}

func (*systemClock) monotonic() time.Time { return time.Now() }

func (*systemClock) afterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }

// suspension tells how far the clock that goes on while the machine is suspended is ahead of the monotonic
// one. Reading that clock is a system call, the others are not, and every call under a lease begins with a look
// at the clocks. So it is read only where the wall clock has moved against the monotonic one since: on waking
// up, the kernel adds the same length to both, and what adjusts their rate adjusts them alike.
type suspension struct {
	sinceBoot func() time.Duration
	last      atomic.Pointer[clocksRead]
}

type clocksRead struct{ length, wallAhead time.Duration }

// wallMoved is what counts as a move of the wall clock. Two clocks are never read at the same moment.
const wallMoved = time.Millisecond

func (s *suspension) length(monotonic, wall time.Duration) time.Duration {
	last, wallAhead := s.last.Load(), wall-monotonic
	if last == nil || (wallAhead-last.wallAhead).Abs() > wallMoved {
		last = &clocksRead{length: s.sinceBoot() - monotonic, wallAhead: wallAhead}
		s.last.Store(last)
	}
	return last.length
}
