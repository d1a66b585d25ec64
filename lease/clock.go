package lease

import (
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// clocks is this package's source of time; tests replace it.
type clocks interface {
	now() clock.Instant
	// monotonic is the monotonic part of now alone.
	monotonic() time.Time
	// afterFunc calls f in its own goroutine once d has passed on the monotonic clock.
	afterFunc(d time.Duration, f func()) timer
}

type timer interface {
	Reset(d time.Duration) bool
	Stop() bool
}

// systemClocks reads this host's clocks. It is safe for concurrent use.
type systemClocks struct{ host *clock.System }

func newSystemClocks(wall func() time.Time) *systemClocks {
	return &systemClocks{clock.NewSystem(wall)}
}

func (c *systemClocks) now() clock.Instant { return c.host.Now() }

func (*systemClocks) monotonic() time.Time { return time.Now() }

func (*systemClocks) afterFunc(d time.Duration, f func()) timer { return time.AfterFunc(d, f) }
