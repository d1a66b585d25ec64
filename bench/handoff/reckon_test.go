package handoff

import (
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// at returns a moment, in milliseconds from an arbitrary one.
func at(ms float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(ms * float64(time.Millisecond)))
}

// turns is one slice of 100 ms in which three clients had the lock. The last turn began after it.
func turns() slice {
	return slice{end: at(100), stranded: 2, turns: []turn{
		{client: 2, asked: at(30), got: at(40), leaving: at(50)}, // asked when the lock had been free for long
		{client: 0, asked: at(0), got: at(1), leaving: at(10)},
		{client: 1, asked: at(2), got: at(13), leaving: at(20)},  // 3 ms after it was given back
		{client: 0, asked: at(45), got: at(51), leaving: at(60)}, // 1 ms
		{client: 2, asked: at(55), got: at(62), leaving: at(70)}, // 2 ms
		{client: 0, asked: at(65), got: at(101), leaving: at(110)},
	}}
}

func TestReckon(t *testing.T) {
	t.Parallel()
	got := reckon(turns(), 3, 100*time.Millisecond)
	want := Sample{Median: 2, Slow: 3, Rate: 50, Most: 2, Stranded: 2}
	if !near(got.Median, want.Median) || !near(got.Slow, want.Slow) || !near(got.Rate, want.Rate) ||
		got.Most != want.Most ||
		got.Stranded != want.Stranded {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

func TestReckonOfNothing(t *testing.T) {
	t.Parallel()
	if got := reckon(slice{end: at(1)}, 3, time.Second); got != (Sample{Most: 1}) {
		t.Errorf("got %+v, want nothing, shared equally", got)
	}
}

// A client that never had the lock must not make the ratio infinite, because JSON has no infinity.
func TestTheUnluckiestCountsOnce(t *testing.T) {
	t.Parallel()
	if got := reckon(turns(), 4, 100*time.Millisecond).Most; got != 2 {
		t.Errorf("got %v, want 2 to 1", got)
	}
}

func TestRatioIsTakenWithinRounds(t *testing.T) {
	t.Parallel()
	baseline := Series{Samples: []Sample{{Rate: 100}, {Rate: 10}, {Rate: 50}}}
	ours := Series{Samples: []Sample{{Rate: 50}, {Rate: 20}, {Rate: 100}}}
	rate := func(s Sample) float64 { return s.Rate }
	if got := ours.Ratio(baseline, rate).Median; got != 2 {
		t.Errorf("got a ratio of %v, want 2", got)
	}
	if got := ours.Spread(rate); got != (measure.Spread{Low: 35, Median: 50, High: 75}) {
		t.Errorf("got %+v", got)
	}
}
