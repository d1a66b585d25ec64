package compare

import (
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
)

// Every count is reported, each in its field.
func TestACellReportsWhatWasCounted(t *testing.T) {
	t.Parallel()
	j := job{mode: report.ModeNone, workload: work.Transfer, fault: fault.Fault{Name: report.FaultPause}, keyed: true}
	got := j.cell(
		&worker.Sum{
			Operations:        9,
			Accepted:          8,
			Refused:           7,
			RefusedByPostgres: 6,
			Unknown:           5,
			Unavailable:       250 * time.Millisecond,
		},
		work.Audit{Effects: 4, LostUpdates: 3, Duplicates: 2, Unbalanced: 1},
	)
	want := report.Cell{
		Mode:              report.ModeNone,
		Workload:          report.WorkloadTransfer,
		Fault:             report.FaultPause,
		Keyed:             true,
		Operations:        9,
		Accepted:          8,
		Refused:           7,
		RefusedByPostgres: 6,
		LostUpdates:       3,
		Duplicates:        2,
		Unbalanced:        1,
		Unknown:           5,
		UnavailableS:      0.25,
	}
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}
