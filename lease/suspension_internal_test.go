package lease

import (
	"testing"
	"time"
)

// The clock that goes on in a suspended machine is read again exactly where it may have moved.
func TestSuspension(t *testing.T) {
	t.Parallel()
	var read int
	var asleep, monotonic time.Duration
	s := suspension{sinceBoot: func() time.Duration { read++; return time.Hour + monotonic + asleep }}
	length := func(wallAhead time.Duration) time.Duration {
		return s.length(monotonic, 100*time.Hour+monotonic+wallAhead)
	}
	first := length(0)
	for _, c := range []struct {
		name              string
		asleep, wallAhead time.Duration
		reads             int
	}{
		{"time passes", 0, 0, 1},
		{"clocks are not read at the same moment", 0, time.Millisecond / 2, 1},
		{"the machine was suspended", time.Minute, time.Minute, 2},
		{"time passes after it", time.Minute, time.Minute, 2},
		{"the wall clock is set back", time.Minute, 0, 3},
		{"suspended once more", time.Minute + 2*time.Millisecond, 2 * time.Millisecond, 4},
	} {
		asleep = c.asleep
		monotonic += 10 * time.Second
		if got := length(c.wallAhead) - first; got != c.asleep {
			t.Errorf("%s: suspended for %v, want %v", c.name, got, c.asleep)
		}
		if read != c.reads {
			t.Errorf("%s: the clock was read %d times, want %d", c.name, read, c.reads)
		}
	}
}

// The real clocks agree while nothing is suspended and nobody sets them.
func TestSystemClock(t *testing.T) {
	t.Parallel()
	c := newSystemClock(nil)
	start := c.now()
	longest, monotonic := c.now().since(start)
	if monotonic < 0 || longest < monotonic || longest > monotonic+time.Second {
		t.Errorf("%v by the longest clock and %v by the monotonic one", longest, monotonic)
	}
}
