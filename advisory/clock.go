package advisory

import "time"

// instant is one reading of this host's clocks.
type instant struct {
	time time.Time     // its monotonic reading counts
	wall time.Duration // since an arbitrary moment, by the clock on the wall
}

func now(wall func() time.Time) instant {
	t := time.Now()
	if wall == nil {
		return instant{time: t, wall: time.Duration(t.UnixNano())}
	}
	return instant{time: t, wall: time.Duration(wall().UnixNano())}
}

// since returns how long ago start was: the most that either clock says. The monotonic one stands still while a virtual
// machine is suspended, the other can be stepped. No decision compares clocks of two hosts.
func (i instant) since(start instant) time.Duration {
	return max(i.time.Sub(start.time), i.wall-start.wall)
}
