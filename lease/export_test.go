package lease

import "time"

// Timer is what a test's clock hands out.
type Timer = timer

// FakeClock lets a test say what time it is.
type FakeClock struct {
	NowFunc       func() (t time.Time, boot time.Duration)
	SinceWallFunc func() time.Duration
	AfterFuncFunc func(d time.Duration, f func()) Timer
}

func (c *FakeClock) now() instant {
	t, boot := c.NowFunc()
	return instant{time: t, wall: c.SinceWallFunc(), boot: boot}
}

func (c *FakeClock) monotonic() time.Time { return c.now().time }

func (c *FakeClock) afterFunc(d time.Duration, f func()) timer { return c.AfterFuncFunc(d, f) }

// WithClock returns opts with a clock of the test's own.
func WithClock(opts Options, c *FakeClock) *Options {
	opts.clock = c
	return &opts
}

// KeysOf shows the keys of a resource.
func KeysOf(prefix, resource string) (leaseKey, counterKey string) {
	k := keysOf(prefix, resource)
	return k.lease, k.counter
}

// IsClosed tells whether a channel has been closed.
func IsClosed(c <-chan struct{}) bool { return isClosed(c) }

// Milliseconds shows what is sent for a duration.
func Milliseconds(d time.Duration) int64 { return milliseconds(d) }
