package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// run is what the cells of a run share.
type run struct {
	options   *Options
	databases *databases
	singles   *shelf[*services.Redis]
	pairs     *shelf[*services.Pair]

	mu   sync.Mutex // one call of Progress after the other
	done int
	all  int
}

// Run runs all cells of the options and then, while nothing else runs, measures what each mode costs. Package services
// starts all servers for the run, and stops them, because the faults damage them.
//
// The report has what was found so far, also together with an error. The error of a cell names the cell and does not
// end the other cells. ctx bounds the whole call. When Run returns, no server, process or database of the run is left,
// unless the error says so.
func Run(ctx context.Context, o *Options) (*report.Report, error) {
	o = o.withDefaults()
	found := &report.Report{Settings: settingsOf(o)}
	if err := o.validate(); err != nil {
		return found, err
	}
	jobs, leftOut := plan(o)
	found.LeftOut = leftOut
	if len(jobs) == 0 {
		return found, errNoCell(leftOut)
	}
	if err := runOn(ctx, o, jobs, found); err != nil {
		found.Error = err.Error()
		return found, err
	}
	return found, nil
}

// errNoCell says why there is nothing to run.
func errNoCell(leftOut []report.LeftOut) error {
	if len(leftOut) == 0 {
		return errors.New("there is no cell to run: a quick run has not what was chosen")
	}
	l := &leftOut[0]
	return fmt.Errorf("there is no cell to run: of %s, %s, %s, for one, %s", l.Mode, l.Workload, l.Fault, l.Reason)
}

func runOn(ctx context.Context, o *Options, jobs []job, found *report.Report) (err error) {
	// As in production, because the figures would otherwise mean little.
	postgres, err := services.StartPostgres(ctx, "-c", "fsync=on", "-c", "synchronous_commit=on")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	return withRun(ctx, o, postgres.URL(), func(r *run) error {
		if err := r.describe(ctx, postgres, found); err != nil {
			return err
		}
		err := r.runCells(ctx, jobs, found)
		if ctx.Err() != nil {
			return err
		}
		return errors.Join(err, r.measure(ctx, found))
	})
}

// withRun calls fn with a run on a PostgreSQL server, and leaves nothing of it there.
func withRun(ctx context.Context, o *Options, postgresURL string, fn func(*run) error) (err error) {
	r := &run{options: o, singles: singles(), pairs: pairs()}
	defer func() { err = errors.Join(err, r.singles.close(), r.pairs.close()) }()
	if r.databases, err = openDatabases(ctx, postgresURL); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.databases.close(ctx)) }()
	return fn(r)
}

// runCells runs a few cells at a time and adds to the report those that were run, in the order of the jobs, and
// those that could not be.
func (r *run) runCells(ctx context.Context, jobs []job, found *report.Report) error {
	jobs, leftOut, err := r.possible(ctx, jobs)
	if err != nil {
		return err
	}
	found.LeftOut = append(found.LeftOut, leftOut...)
	r.all = len(jobs) + 1 // the figures are one step
	results, errs := make([]*report.Cell, len(jobs)), make([]error, len(jobs))
	next := make(chan int)
	var runners sync.WaitGroup
	for range r.options.Parallel {
		runners.Go(func() {
			for i := range next {
				results[i], errs[i] = r.runCell(ctx, jobs[i])
				r.tell(1, jobs[i].String())
			}
		})
	}
	for i := 0; i < len(jobs) && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	runners.Wait()
	for _, c := range results {
		if c != nil {
			found.Cells = append(found.Cells, *c)
		}
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// possible tells jobs from those for which something is missing here.
func (r *run) possible(ctx context.Context, jobs []job) (can []job, cannot []report.LeftOut, err error) {
	asked, missing := false, false
	for _, j := range jobs {
		if j.needsPair() && !asked {
			asked = true
			err := tryPair(ctx, r.pairs)
			if missing = errors.Is(err, services.ErrNotInstalled); err != nil && !missing {
				return nil, nil, fmt.Errorf("start a Redis with a replica: %w", err)
			}
		}
		if j.needsPair() && missing {
			cannot = append(cannot, j.leftOut("it needs an installed redis-server or valkey-server"))
			continue
		}
		can = append(can, j)
	}
	return can, cannot, nil
}

// tell tells of what has been done, or is going on, and that so many steps more have been taken.
func (r *run) tell(steps int, step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += steps
	r.options.Progress(r.done, r.all, step)
}

// each calls fn for all items at once.
func each[T any](items []T, fn func(int, T) error) error {
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { errs[i] = fn(i, item) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func settingsOf(o *Options) report.Settings {
	return report.Settings{
		Seed: o.Seed, DurationS: o.Duration.Seconds(), TTLS: ttl.Seconds(), Workers: o.Workers, Quick: o.Quick,
		Date: time.Now().UTC().Truncate(time.Second),
	}
}
