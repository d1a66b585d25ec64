package compare

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// Options are the settings of [Run].
type Options struct {
	// Seed decides which operations there are and which worker a fault happens to. Default 0, a seed like any other.
	Seed uint64
	// Duration is how long the workers of a cell are at work undisturbed, half of it before the fault and half of it
	// after. Default 3 s, and 600 ms where Quick.
	Duration time.Duration
	// Modes, Faults and Workloads choose among those of package report. Default: all, but not each with each; see the
	// tables of docs/comparison.md.
	Modes, Faults, Workloads []string
	// Workers is how many processes work in a cell, at least two. Default 3.
	Workers int
	// Quick has fewer cells, and shorter ones.
	Quick bool
	// Worker is a command, with the path of a program, that calls worker.Run with its standard input and output. Required.
	Worker []string
	// Parallel is how many cells run at the same time. They wait more than they work. Default: one more than there are
	// CPUs, at most 6.
	Parallel int
	// Progress is called with the number of steps done, the number of all steps, and the latest cell or what is being
	// measured. Calls do not overlap. Measuring takes longer than a cell, and counts as one step. Default: none.
	Progress func(done, total int, cell string)

	// For tests: the modes that do without their guard, and without looking at the lease as well; and what bounds a
	// cell besides the time that its workers are at work undisturbed.
	unguarded, unwatched string
	patience             time.Duration
}

const (
	// ttl is how long leases and locks last. It is short, because many cells wait for one to run out. It is not
	// shorter, because a machine that is busy with other cells must not be what ends them.
	ttl = 750 * time.Millisecond
	// longTTL is for cells in which no lease may run out by itself, nor be renewed before others have taken over: a
	// renewal would find out, and it is PostgreSQL that is to be seen there.
	longTTL = 40 * ttl

	cellPatience = time.Minute

	mostWorkers  = 16
	mostDuration = time.Minute
	mostParallel = 6
)

func (o *Options) withDefaults() *Options {
	v := *o
	if v.Duration == 0 {
		v.Duration = 3 * time.Second
		if v.Quick {
			v.Duration = 600 * time.Millisecond
		}
	}
	if v.Workers == 0 {
		v.Workers = 3
	}
	if v.Parallel == 0 {
		v.Parallel = min(runtime.NumCPU()+1, mostParallel)
	}
	if v.patience == 0 {
		v.patience = cellPatience
	}
	if v.Progress == nil {
		v.Progress = func(int, int, string) {}
	}
	return &v
}

func (o *Options) validate() error {
	switch {
	case len(o.Worker) == 0:
		return errors.New("no command for workers")
	case o.Workers < 2 || o.Workers > mostWorkers:
		return fmt.Errorf("%d workers are not 2 to %d", o.Workers, mostWorkers)
	case o.Duration < 0 || o.Duration > mostDuration:
		return fmt.Errorf("a duration of %v is not above 0 and at most %v", o.Duration, mostDuration)
	case o.Parallel < 1:
		return fmt.Errorf("%d cells at the same time are not 1 or more", o.Parallel)
	}
	return errors.Join(
		known(
			"mode",
			o.Modes,
			report.Modes(),
		),
		known("fault", o.Faults, report.Faults()),
		known("workload", o.Workloads, report.Workloads()),
	)
}

func known(what string, names, all []string) error {
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%q is no %s; there are %q", name, what, all)
		}
	}
	return nil
}
