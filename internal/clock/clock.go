// Package clock reads every clock that this host has, for leases: one must end by the most pessimistic of them.
package clock

import (
	"sync/atomic"
	"time"
)

// Instant is one reading of this host's clocks.
type Instant struct {
	Time time.Time     // its monotonic reading counts
	Wall time.Duration // since an arbitrary moment, by the clock on the wall
	Boot time.Duration // since an arbitrary moment, suspended time included, where the system has such a clock
}

// Since returns how long ago start was: the most that any clock says, and what the monotonic clock
// alone says. Go's monotonic clock stands still while a virtual machine is suspended, and the
// wall clock may be stepped; the lease must end by the most pessimistic of them, and no decision
// compares clocks of two hosts.
func (i Instant) Since(start Instant) (longest, monotonic time.Duration) {
	monotonic = i.Time.Sub(start.Time)
	return max(monotonic, i.Wall-start.Wall, i.Boot-start.Boot), monotonic
}

// System reads this host's clocks. It is safe for concurrent use.
type System struct {
	began     time.Time        // what monotonic durations count from
	onTheWall func() time.Time // nil: the time that comes with the monotonic reading
	suspended suspension
}

// NewSystem makes a System. wall is read in the place of the wall clock, and must be safe for concurrent use; nil means time.Now.
func NewSystem(wall func() time.Time) *System {
	return &System{began: time.Now(), onTheWall: wall, suspended: suspension{sinceBoot: sinceBoot}}
}

// Now reads the clocks. Instants of two Systems are not to be compared.
func (s *System) Now() Instant {
	now := time.Now()
	wall, monotonic := time.Duration(now.UnixNano()), now.Sub(s.began)
	if s.onTheWall != nil {
		wall = time.Duration(s.onTheWall().UnixNano())
	}
	return Instant{Time: now, Wall: wall, Boot: monotonic + s.suspended.length(monotonic, wall)}
}

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
