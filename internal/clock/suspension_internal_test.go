package clock

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

// C61: a wall clock of the caller's that stands still with the monotonic clock hides no suspension.
func TestCase61_ASuspensionShowsWhateverTheCallersClockSays(t *testing.T) {
	t.Parallel()
	var began time.Time
	s := NewSystem(func() time.Time { return time.Unix(0, 0).Add(time.Since(began)) }) // it follows the monotonic clock
	began = s.began
	// This machine was not suspended, so the wall clock that it was last compared by is put back instead.
	asleep := time.Duration(0)
	s.suspended.sinceBoot = func() time.Duration { return time.Since(began) + asleep }
	start := s.Now()
	asleep = time.Minute
	last := *s.suspended.last.Load()
	last.wallAhead -= time.Minute
	s.suspended.last.Store(&last)
	if longest, monotonic := s.Now().Since(start); longest < time.Minute || monotonic > 10*time.Second {
		t.Errorf("%v have passed, %v by the monotonic clock", longest, monotonic)
	}
}

// The wall clock counts through the instant, as does the time that passed while the machine was suspended.
func TestTheMostThatAnyClockSays(t *testing.T) {
	t.Parallel()
	start := NewSystem(nil).Now()
	for _, later := range []Instant{
		{start.Time.Add(time.Hour), start.Wall, start.Boot},
		{start.Time, start.Wall + time.Hour, start.Boot},
		{start.Time, start.Wall, start.Boot + time.Hour},
	} {
		if longest, monotonic := later.Since(start); longest != time.Hour || monotonic != later.Time.Sub(start.Time) {
			t.Errorf("%v, %v by the monotonic clock", longest, monotonic)
		}
	}
}
