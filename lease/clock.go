package lease

import "time"

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

type systemClock struct{}

func (systemClock) now() instant {
	now := time.Now()
	return instant{time: now, wall: time.Duration(now.UnixNano()), boot: sinceBoot()}
}

func (systemClock) monotonic() time.Time { return time.Now() }

func (systemClock) afterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }
