package fault_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ended(o mode.Outcome, rows ...int64) worker.Event {
	return worker.Event{What: worker.IsEnded, Rows: rows, Outcome: o, At: time.Now()}
}

// Only accepted operations count, by worker and by row.
func TestHistoryCountsWhatWasAccepted(t *testing.T) {
	t.Parallel()
	h := fault.NewHistory()
	h.Add(0, ended(mode.Accepted, 1, 2))
	h.Add(1, ended(mode.Accepted, 2, 3))
	h.Add(1, ended(mode.Refused, 1))
	h.Add(1, worker.Event{What: worker.IsBegun, Rows: []int64{1}})
	for _, tt := range []struct {
		worker int
		rows   []int64
		want   int
	}{
		{-1, nil, 2},
		{0, nil, 1},
		{-1, []int64{1}, 1},
		{-1, []int64{2}, 2},
		{1, []int64{1}, 0},
		{1, []int64{3, 9}, 1},
		{-1, []int64{4}, 0},
	} {
		if got := h.Times(tt.worker, tt.rows); got != tt.want {
			t.Errorf("worker %d, rows %v: %d, want %d", tt.worker, tt.rows, got, tt.want)
		}
	}
}

func TestHistoryWaitsForWhatIsToCome(t *testing.T) {
	t.Parallel()
	h := fault.NewHistory()
	looked := make(chan struct{}, 1)
	go func() {
		<-looked
		h.Add(0, ended(mode.Accepted, 1))
	}()
	err := h.Await(t.Context(), func() bool {
		select {
		case looked <- struct{}{}:
		default:
		}
		return h.Times(0, nil) == 1
	})
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := h.Await(ctx, func() bool { return false }); !errors.Is(err, enough) {
		t.Errorf("got %v, want why the context has ended", err)
	}
}

// Every fault of a report can be made, in the same order, and no other.
func TestEveryFaultOfAReportIsThere(t *testing.T) {
	t.Parallel()
	all := fault.All()
	if len(all) != len(report.Faults()) {
		t.Fatalf("there are %d faults, and reports know %d", len(all), len(report.Faults()))
	}
	for i, name := range report.Faults() {
		if f, err := fault.Find(name); err != nil || f.Name != all[i].Name {
			t.Errorf("fault %q is %q at its place: %v", name, all[i].Name, err)
		}
	}
	if _, err := fault.Find("fire"); err == nil {
		t.Error("a fault was found that is none")
	}
}
