package lease

import (
	"time"

	host "github.com/fencepost-pg/fencepost/internal/clock"
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
	time       time.Time
	wall, boot time.Duration
}

// since returns how long ago start was: the most that any clock says, and what the monotonic clock alone says.
func (i instant) since(start instant) (longest, monotonic time.Duration) {
	return i.reading().Since(start.reading())
}

func (i instant) reading() host.Instant {
	return host.Instant{Time: i.time, Wall: i.wall, Boot: i.boot}
}

// systemClock reads this host's clocks. It is safe for concurrent use.
type systemClock struct{ host *host.System }

func newSystemClock(wall func() time.Time) *systemClock { return &systemClock{host.NewSystem(wall)} }

func (c *systemClock) now() instant {
	now := c.host.Now()
	return instant{time: now.Time, wall: now.Wall, boot: now.Boot}
}

func (*systemClock) monotonic() time.Time { return time.Now() }

func (*systemClock) afterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }
