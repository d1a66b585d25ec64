package compare

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// Cell is a job of the plan, in a form for tests.
type Cell struct {
	Mode, Workload, Fault string
	Keyed                 bool
}

func cellOf(j job) Cell { return Cell{j.mode, string(j.workload), j.fault.Name, j.keyed} }

func (c Cell) job() job {
	f, err := fault.Find(c.Fault)
	if err != nil {
		panic(err)
	}
	return job{mode: c.Mode, workload: work.Workload(c.Workload), fault: f, keyed: c.Keyed}
}

// PlanOf returns the cells that would be run, and those that would not be.
func PlanOf(o *Options) (cells []Cell, leftOut []report.LeftOut) {
	jobs, leftOut := plan(o.withDefaults())
	for _, j := range jobs {
		cells = append(cells, cellOf(j))
	}
	return cells, leftOut
}

// Chance returns numbers that decide what happens in each cell.
func Chance(o *Options) (numbers []uint64) {
	jobs, _ := plan(o.withDefaults())
	for _, j := range jobs {
		numbers = append(numbers, j.random(o.Seed).Uint64())
	}
	return numbers
}

// WithoutTheGuard makes a mode write under its lease alone. The holder still checks the lease.
func WithoutTheGuard(o *Options, mode string) { o.unguarded = mode }

// WithoutTheGuardAndUnwatched makes a mode write without the guard and without checking the lease.
func WithoutTheGuardAndUnwatched(o *Options, mode string) { o.unguarded, o.unwatched = mode, mode }

// Impatient limits the time of each cell, besides its duration.
func Impatient(o *Options, patience time.Duration) { o.patience = patience }

// RunCells runs cells on a PostgreSQL server, as Run does, without the rest of a run.
func RunCells(ctx context.Context, o *Options, postgresURL string, cells []Cell) (*report.Report, error) {
	o = o.withDefaults()
	found := &report.Report{Settings: settingsOf(o)}
	if err := o.validate(); err != nil {
		return found, err
	}
	var jobs []job
	for _, c := range cells {
		jobs = append(jobs, c.job())
	}
	return found, withRun(ctx, o, postgresURL, func(r *run) error { return r.runCells(ctx, jobs, found) })
}

// OnStage calls fn while the workers of a cell work.
func OnStage(ctx context.Context, o *Options, postgresURL string, c Cell, fn func(*fault.Scene) error) error {
	return withRun(ctx, o.withDefaults(), postgresURL, func(r *run) error {
		s := &stage{run: r, job: c.job()}
		err := s.build(ctx)
		if err == nil {
			err = errors.Join(s.beginWork(), fn(&s.scene))
		}
		return errors.Join(err, s.close())
	})
}

// Find returns what was found in a cell.
func Find(found *report.Report, c Cell) (report.Cell, bool) {
	i := slices.IndexFunc(found.Cells, func(f report.Cell) bool { return Cell{f.Mode, f.Workload, f.Fault, f.Keyed} == c })
	if i < 0 {
		return report.Cell{}, false
	}
	return found.Cells[i], true
}
