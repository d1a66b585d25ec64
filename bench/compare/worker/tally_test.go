//go:build unix

package worker_test

import (
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
)

func TestATallyCounts(t *testing.T) {
	t.Parallel()
	tally := worker.NewTally()
	for _, e := range []worker.Event{
		{What: worker.IsReady},
		{What: worker.IsBegun, ID: "done"},
		{What: worker.IsAttempt, ID: "done", Outcome: mode.Refused},
		{What: worker.IsAttempt, ID: "done", Outcome: mode.Refused, ByPostgres: true},
		{What: worker.IsAttempt, ID: "done", Outcome: mode.Unknown},
		{What: worker.IsAttempt, ID: "done", Outcome: mode.Unavailable},
		{What: worker.IsEnded, ID: "done", Rows: []int64{3}, Outcome: mode.Accepted, Doubt: true, At: time.Now()},
		{What: worker.IsBegun, ID: "in doubt"},
		{What: worker.IsEnded, ID: "in doubt", Outcome: mode.Refused, Doubt: true},
		{What: worker.IsBegun, ID: "not done"},
		{What: worker.IsEnded, ID: "not done", Outcome: mode.Refused},
		{What: worker.IsBegun, ID: "in hand"},
		{What: worker.IsStopped},
	} {
		tally.Watch(e)
	}
	got := tally.Sum()
	counts := [7]int64{
		got.Operations,
		got.Accepted,
		got.Refused,
		got.RefusedByPostgres,
		got.Unknown,
		got.Doubts,
		got.Failures,
	}
	if want := [7]int64{4, 1, 2, 1, 2, 1, 1}; counts != want {
		t.Errorf("got %v, want %v", counts, want)
	}
	if len(got.Acknowledged) != 1 || got.Acknowledged[0].ID != "done" || got.Acknowledged[0].Rows[0] != 3 {
		t.Errorf("acknowledged are %+v", got.Acknowledged)
	}
}

// The longest gap counts, including one at either end. Events before Begin and after End do not count.
func TestATallyKnowsTheLongestGap(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	accepted := func(tally *worker.Tally, at time.Time) {
		tally.Watch(worker.Event{What: worker.IsEnded, Outcome: mode.Accepted, At: at})
	}
	began := time.Now()
	tally := worker.NewTally()
	accepted(tally, began.Add(9*hour))
	tally.Begin()
	for _, at := range []time.Duration{hour, 4 * hour, 5 * hour} {
		accepted(tally, began.Add(at))
	}
	tally.End()
	accepted(tally, began.Add(20*hour))
	if got := tally.Sum().Unavailable; got.Round(time.Minute) != 3*hour {
		t.Errorf("the longest gap is %v, want 3h", got)
	}
	idle := worker.NewTally()
	<-time.After(10 * time.Millisecond)
	if got := idle.Sum().Unavailable; got < 10*time.Millisecond {
		t.Errorf("where nothing was accepted the gap is %v", got)
	}
}
