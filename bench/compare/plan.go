package compare

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// job is a cell that is to be run.
type job struct {
	mode     string
	workload work.Workload
	fault    fault.Fault
	keyed    bool
}

// String is the cell's name for people.
func (j *job) String() string {
	name := strings.Join([]string{j.mode, string(j.workload), j.fault.Name}, ", ")
	if j.keyed {
		name += ", keyed"
	}
	return name
}

// random returns the cell's own source of chance: the same for a seed, whatever other cells there are.
func (j *job) random(seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(j.String())) // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// needsPair tells that the mode's one Redis server has a replica.
func (j *job) needsPair() bool {
	return j.fault.Pair && mode.UsesRedis(j.mode) && j.mode != mode.RedisQuorum
}

// leftOut is the job as one that is not run.
func (j *job) leftOut(reason string) report.LeftOut {
	return report.LeftOut{Mode: j.mode, Workload: string(j.workload), Fault: j.fault.Name, Keyed: j.keyed, Reason: reason}
}

// plan returns the cells of a run in the order of the tables, and the cells that make no sense, with the reason.
//
// The counter, and invoices in the mode that exists only for them, get all faults. Other workloads get no fault and the
// paused worker; invoices get a lost reply as well. A lost reply is tried with and without an idempotency key. Quick
// has only the counter and four faults. A workload that was chosen by name gets all faults that were chosen.
// were.
func plan(o *Options) (jobs []job, leftOut []report.LeftOut) {
	for _, w := range chosen(o.Workloads, report.Workloads()) {
		for _, m := range chosen(o.Modes, report.Modes()) {
			for _, f := range fault.All() {
				if !wanted(o, m, work.Workload(w), f.Name) {
					continue
				}
				for _, keyed := range keys(m, f.Name) {
					j := job{mode: m, workload: work.Workload(w), fault: f, keyed: keyed}
					if reason := j.senseless(); reason != "" {
						leftOut = append(leftOut, j.leftOut(reason))
						continue
					}
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs, leftOut
}

func chosen(names, all []string) []string {
	if len(names) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(names, name) })
}

// wanted tells whether a fault is part of the run for a mode and workload.
func wanted(o *Options, m string, w work.Workload, name string) bool {
	if !slices.Contains(chosen(o.Faults, report.Faults()), name) {
		return false
	}
	if len(o.Workloads) > 0 {
		return true
	}
	main := w == work.Counter || w == work.Invoice && m == mode.Unique
	if o.Quick {
		quick := []string{report.FaultNone, report.FaultPause, report.FaultRedisRestartEmpty, report.FaultCommitReplyLost}
		return main && (len(o.Faults) > 0 || slices.Contains(quick, name))
	}
	switch name {
	case report.FaultNone, report.FaultPause:
		return true
	case report.FaultCommitReplyLost:
		return main || w == work.Invoice
	}
	return main
}

// keys says with and without what idempotency key a fault is tried.
func keys(m, name string) []bool {
	switch {
	case name == report.FaultCommitReplyLost:
		return []bool{false, true}
	case m == mode.Unique: // keyed by nature
		return []bool{true}
	}
	return []bool{false}
}

// senseless returns why a cell makes no sense, and "" where it does.
func (j *job) senseless() string {
	if reason := mode.LeftOut(j.mode, j.workload, j.keyed); reason != "" {
		return reason
	}
	if j.fault.Redis && !mode.UsesRedis(j.mode) {
		return "it uses no Redis"
	}
	if j.fault.Clock && !mode.ReadsClock(j.mode) {
		return "it reads no wall clock"
	}
	return ""
}
