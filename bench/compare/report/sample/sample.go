// Package sample has a report of which every number is made up, for tests of what is shown.
package sample

import (
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/figure"
)

// Report returns a report as large as that of a full run: losses, duplicates, cells left out, a target that
// was missed. Each call returns a new one.
func Report() *report.Report {
	high, low := 0.9, 0.75
	met, missed := true, false
	r := &report.Report{
		Modes: modes(),
		Figures: []report.Figure{
			{Figure: figure.Figure{
				Name: "redis-lease, 100 writes per lease", Value: 5120.5, Unit: "writes/s",
				Against: "none, 100 writes", Ratio: 0.81, Target: &low, Met: &met,
			}},
			{
				Figure: figure.Figure{
					Name:    "redis-lease, 1 write per lease",
					Value:   310,
					Unit:    "writes/s",
					Against: "for-update, 1 write",
					Ratio:   0.4,
					Target:  &high,
					Met:     &missed,
				},
			},
			{
				Figure: figure.Figure{
					Name:    "connections held by waiters, redis-lease",
					Value:   0,
					Unit:    "connections",
					Against: "for-update",
					Ratio:   0,
				},
			},
		},
		Versions: map[string]string{
			"fencepost": "(devel)",
			"go":        "go1.26.0",
			"postgres":  "15.18",
			"redis":     "7.0.15",
			"os":        "linux/amd64",
			"cpu":       "2 of a sample's <processors> & more",
		},
		Settings: report.Settings{
			Seed:              1<<63 + 1,
			DurationS:         2,
			TTLS:              0.8,
			Workers:           3,
			Command:           "fencepost compare",
			Fsync:             "on",
			SynchronousCommit: "on",
			Date:              time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
		},
	}
	for i, fault := range report.Faults() {
		add(r, report.WorkloadCounter, fault, false, int64(i))
	}
	add(r, report.WorkloadCounter, report.FaultCommitReplyLost, true, 3)
	for _, workload := range report.Workloads()[1:] {
		add(r, workload, report.FaultNone, false, 2)
		add(r, workload, report.FaultPause, false, 4)
	}
	return r
}

// add adds a row of cells: none and redis-lock lose updates, a lost reply makes for duplicates.
func add(r *report.Report, workload, fault string, keyed bool, i int64) {
	for at, mode := range report.Modes() {
		if reason := reasonToLeaveOut(mode, workload, fault); reason != "" {
			r.LeftOut = append(
				r.LeftOut,
				report.LeftOut{Mode: mode, Workload: workload, Fault: fault, Keyed: keyed, Reason: reason},
			)
			continue
		}
		c := report.Cell{
			Mode:              mode,
			Workload:          workload,
			Fault:             fault,
			Keyed:             keyed,
			Operations:        1000 + 100*i,
			Accepted:          990 + 100*i,
			Refused:           7 * i,
			RefusedByPostgres: i,
			Unknown:           i,
			UnavailableS:      0.04 + 0.31*float64(i)*float64(at%4),
		}
		switch {
		case mode == report.ModeNone:
			c.LostUpdates = 12345 + i
			if workload == report.WorkloadTransfer {
				c.Unbalanced = 2
			}
		case mode == report.ModeRedisLock && fault != report.FaultNone:
			c.LostUpdates = 1 + i
		}
		if fault == report.FaultCommitReplyLost && !keyed {
			c.Duplicates = 3
		}
		r.Cells = append(r.Cells, c)
	}
}

func reasonToLeaveOut(mode, workload, fault string) string {
	switch {
	case mode == report.ModeUnique && workload != report.WorkloadInvoice:
		return "a unique constraint is for work that only inserts"
	case strings.Contains(fault, "redis") && !strings.HasPrefix(mode, "redis"):
		return "it uses no Redis"
	default:
		return ""
	}
}

func modes() []report.ModeFigures {
	var all []report.ModeFigures
	for i, mode := range report.Modes() {
		at := float64(i)
		m := report.ModeFigures{
			Mode: mode, OpsPerS: 2100.4 / (1 + at/3), P50MS: 0.91 + at, P99MS: 4.2 + 17*at, RoundTripsPostgres: 2 + at/4,
		}
		if mode == report.ModeRedisLease || mode == report.ModeRedisLock {
			m.RoundTripsRedis = 2
		}
		if mode == report.ModeForUpdate || mode == report.ModeAdvisoryXact {
			m.ConnectionsHeld = 1
		}
		all = append(all, m)
	}
	return all
}
