// Package clock reads every clock of this host, for leases: a lease must end by the most pessimistic of them.
package clock

import (
	"sync/atomic"
	"time"
)

// Instant is one reading of this host's clocks.
type Instant struct {
	Time time.Time     // its monotonic reading counts
	Wall time.Duration // since an arbitrary moment, by the wall clock
	Boot time.Duration // since an arbitrary moment, suspended time included; 0 if the system has no such clock
}

// Since returns how long ago start was: the largest of what the clocks report, and what the monotonic clock alone
// reports. Go's monotonic clock stands still while a virtual machine is suspended, and the wall clock may be stepped.
// The lease must end by the most pessimistic of them. No decision compares clocks of two hosts.
func (i Instant) Since(start Instant) (longest, monotonic time.Duration) {
	monotonic = i.Time.Sub(start.Time)
	return max(monotonic, i.Wall-start.Wall, i.Boot-start.Boot), monotonic
}

// System reads this host's clocks. It is safe for concurrent use.
type System struct {
	began     time.Time        // what monotonic durations count from
	onTheWall func() time.Time // nil: the wall time of the monotonic reading
	suspended suspension
}

// NewSystem makes a System. wall replaces the wall clock and must be safe for concurrent use; nil means time.Now.
func NewSystem(wall func() time.Time) *System {
	return &System{began: time.Now(), onTheWall: wall, suspended: suspension{sinceBoot: sinceBoot}}
}

// Now reads the clocks. Instants of two Systems must not be compared.
func (s *System) Now() Instant {
	now := time.Now()
	wall, monotonic := time.Duration(now.UnixNano()), now.Sub(s.began)
	// The host's own wall clock reveals a suspension, whatever replaces it below.
	boot := monotonic + s.suspended.length(monotonic, wall)
	if s.onTheWall != nil {
		wall = time.Duration(s.onTheWall().UnixNano())
	}
	return Instant{Time: now, Wall: wall, Boot: boot}
}

// suspension returns how far the clock that runs during suspension is ahead of the monotonic clock. Reading that clock
// is a system call and reading the others is not, and every call under a lease begins by reading the clocks. So it is
// read only if the wall clock has moved against the monotonic clock since the last time: on resume the kernel adds the
// same time to both, and rate adjustments affect both alike.
type suspension struct {
	sinceBoot func() time.Duration
	last      atomic.Pointer[clocksRead]
}

type clocksRead struct{ length, wallAhead time.Duration }

// wallMoved is the difference that counts as a move of the wall clock. Two clocks are never read at exactly the same
// moment.
const wallMoved = time.Millisecond

func (s *suspension) length(monotonic, wall time.Duration) time.Duration {
	last, wallAhead := s.last.Load(), wall-monotonic
	if last == nil || (wallAhead-last.wallAhead).Abs() > wallMoved {
		last = &clocksRead{length: s.sinceBoot() - monotonic, wallAhead: wallAhead}
		s.last.Store(last)
	}
	return last.length
}
