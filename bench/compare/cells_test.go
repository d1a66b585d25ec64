package compare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// verdict is what is to be found in a cell.
type verdict struct {
	cell            compare.Cell
	lost, duplicate bool
}

// verdicts are the claims of the README, each with the cell that holds it. A fault that misses ends the run with an
// error.
func verdicts() []verdict {
	in := func(mode, fault string) compare.Cell {
		return compare.Cell{Mode: mode, Workload: report.WorkloadCounter, Fault: fault}
	}
	keyed := func(mode, workload string) compare.Cell {
		return compare.Cell{Mode: mode, Workload: workload, Fault: report.FaultCommitReplyLost, Keyed: true}
	}
	all := []verdict{
		// Modes without a fence lose updates if a worker is stopped or Redis forgets.
		{cell: in(report.ModeNone, report.FaultPause), lost: true},
		{cell: in(report.ModeRedisLock, report.FaultPause), lost: true},
		{cell: in(report.ModeRedisLock, report.FaultRedisRestartEmpty), lost: true},
		{cell: in(report.ModeRedisLock, report.FaultRedisFailover), lost: true},
		{cell: in(report.ModeRedisLock, report.FaultCommitReplyLost), duplicate: true},
		// A quorum loses no update either, whether a minority or all of its servers lose their data.
		{cell: in(report.ModeRedisQuorum, report.FaultRedisRestartEmpty)},
		{cell: in(report.ModeRedisQuorum, report.FaultRedisFailover)},
		// A row lock needs an idempotency key if the reply is lost.
		{cell: in(report.ModeForUpdate, report.FaultCommitReplyLost), duplicate: true},
		{cell: keyed(report.ModeForUpdate, report.WorkloadCounter)},
		{cell: keyed(report.ModeRedisLock, report.WorkloadCounter)},
		{cell: keyed(report.ModeUnique, report.WorkloadInvoice)},
		{cell: keyed(report.ModeRedisLease, report.WorkloadCounter)},
	}
	// The fence loses nothing, whatever goes wrong, and asks PostgreSQL for the outcome of a COMMIT.
	for _, fault := range report.Faults() {
		all = append(all, verdict{cell: in(report.ModeRedisLease, fault)})
	}
	return all
}

// refusedByPostgres is the cell in which only PostgreSQL can refuse the write.
func refusedByPostgres() compare.Cell {
	return compare.Cell{
		Mode:     report.ModeRedisLease,
		Workload: report.WorkloadCounter,
		Fault:    report.FaultRedisRestartEmpty,
	}
}

// Every fault strikes, on real servers, and the counts are those of the README.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	var cells []compare.Cell
	for _, v := range verdicts() {
		cells = append(cells, v.cell)
	}
	found, err := compare.RunCells(t.Context(), options(t), testenv.EmptyDatabase(t), cells)
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Validate(); err != nil {
		t.Error(err)
	}
	for _, v := range verdicts() {
		t.Run(fmt.Sprint(v.cell), func(t *testing.T) {
			got, ok := compare.Find(found, v.cell)
			switch {
			case !ok:
				t.Error("there is no such cell")
			case got.LostUpdates > 0 != v.lost:
				t.Errorf("%d updates were lost: %+v", got.LostUpdates, got)
			case got.Duplicates > 0 != v.duplicate:
				t.Errorf("%d operations took effect again: %+v", got.Duplicates, got)
			case v.cell == refusedByPostgres() && got.RefusedByPostgres == 0:
				t.Errorf("PostgreSQL refused nothing: %+v", got)
			case got.RefusedByPostgres > got.Refused || got.Accepted == 0 || got.Accepted+got.Unknown > got.Operations:
				t.Errorf("the counts do not fit each other: %+v", got)
			}
		})
	}
	if summary := strings.Join(
		report.Summary(found),
		"\n",
	); !strings.Contains(
		summary,
		"Nothing lost in any cell: redis-lease",
	) {
		t.Errorf("the report says: %s", summary)
	}
}

// The control: verdicts are measured. With protection taken out, the same mode loses updates under the same faults,
// and the report says so. Where Redis forgets, the guard alone is taken out: the holder looks at its lease, and
// sees nothing wrong. Where a TTL has passed, it would see that, so that it must not look either.
func TestWithoutTheGuardTheReportShowsTheLoss(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		take   func(*compare.Options, string)
		faults []string
	}{
		"without the guard": {compare.WithoutTheGuard, []string{report.FaultRedisRestartEmpty, report.FaultRedisFailover}},
		"without the guard and without looking at the lease": {
			compare.WithoutTheGuardAndUnwatched, []string{report.FaultPause, report.FaultCutRedis},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			tt.take(o, report.ModeRedisLease)
			wantLoss(t, o, tt.faults)
		})
	}
}

// wantLoss runs cells of redis-lease, and requires each to lose updates.
func wantLoss(t *testing.T, o *compare.Options, faults []string) {
	t.Helper()
	var cells []compare.Cell
	for _, fault := range faults {
		cells = append(cells, compare.Cell{Mode: report.ModeRedisLease, Workload: report.WorkloadCounter, Fault: fault})
	}
	found, err := compare.RunCells(t.Context(), o, testenv.EmptyDatabase(t), cells)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if got, ok := compare.Find(found, c); !ok || got.LostUpdates == 0 {
			t.Errorf("without the guard nothing is lost, so that it shows nothing: %+v", got)
		}
	}
	if summary := strings.Join(report.Summary(found), "\n"); !strings.Contains(summary, "Lost updates: redis-lease") {
		t.Errorf("the report says: %s", summary)
	}
}
