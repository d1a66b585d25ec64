package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
)

// tries is how often a cell runs at most. It runs again if its fault missed, because then it has shown nothing.
const tries = 3

// runCell runs a cell until its fault has struck. Its error names the cell.
func (r *run) runCell(ctx context.Context, j job) (*report.Cell, error) {
	var c *report.Cell
	var err error
	for range tries {
		c, err = r.tryCell(ctx, j)
		if !errors.Is(err, fault.ErrMissed) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cell %s: %w", &j, err)
	}
	return c, nil
}

// tryCell runs a cell once. If the run is interrupted, it returns neither a cell nor an error: the run reports that.
func (r *run) tryCell(outer context.Context, j job) (c *report.Cell, err error) {
	bound := r.options.patience + r.options.Duration
	ctx, cancel := context.WithTimeoutCause(outer, bound, fmt.Errorf("not done within %v", bound))
	defer cancel()
	s := &stage{run: r, job: j}
	defer func() {
		if outer.Err() != nil {
			err = nil // of what did not come to its end
		}
		if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		err = errors.Join(err, s.close())
	}()
	if err := s.build(ctx); err != nil {
		return nil, err
	}
	return s.play(ctx)
}

// play lets the workers work and the fault strike, and counts.
func (s *stage) play(ctx context.Context) (*report.Cell, error) {
	s.tally.Begin()
	if err := s.beginWork(); err != nil {
		return nil, err
	}
	half := s.run.options.Duration / 2
	if err := undisturbed(ctx, half); err != nil {
		return nil, err
	}
	if err := s.job.fault.Strike(ctx, &s.scene); err != nil {
		return nil, err
	}
	if err := undisturbed(ctx, half); err != nil {
		return nil, err
	}
	s.tally.End()
	if err := s.stopWorkers(ctx); err != nil {
		return nil, err
	}
	return s.count(ctx)
}

func (s *stage) beginWork() error {
	for i, w := range s.scene.Workers {
		if err := w.Begin(); err != nil {
			return fmt.Errorf("have worker %d begin: %w", i, err)
		}
	}
	return nil
}

// undisturbed lets workers work for a while.
func undisturbed(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stopWorkers stops all workers at the same time.
func (s *stage) stopWorkers(ctx context.Context) error {
	return each(s.scene.Workers, func(i int, w *worker.Handle) error {
		if err := w.Stop(ctx); err != nil {
			return fmt.Errorf("stop worker %d: %w", i, err)
		}
		return nil
	})
}

// count sums up what workers said and what the tables say.
func (s *stage) count(ctx context.Context) (*report.Cell, error) {
	if err := s.workersGone(ctx); err != nil {
		return nil, err
	}
	sum := s.tally.Sum()
	audit, err := work.Look(ctx, s.scene.Pool, s.job.workload, sum.Acknowledged)
	if err != nil {
		return nil, err
	}
	if sum.Accepted == 0 {
		return nil, errors.New("nothing was accepted at all")
	}
	return s.job.cell(&sum, audit), nil
}

// cell returns what the report says of a job.
func (j *job) cell(sum *worker.Sum, audit work.Audit) *report.Cell {
	return &report.Cell{
		Mode: j.mode, Workload: string(j.workload), Fault: j.fault.Name, Keyed: j.keyed,
		Operations: sum.Operations, Accepted: sum.Accepted, Refused: sum.Refused, Unknown: sum.Unknown,
		RefusedByPostgres: sum.RefusedByPostgres,
		LostUpdates:       audit.LostUpdates, Duplicates: audit.Duplicates, Unbalanced: audit.Unbalanced,
		UnavailableS: sum.Unavailable.Seconds(),
	}
}

// workersGone waits until no worker has a backend. A worker whose process has ended may still be about to commit.
func (s *stage) workersGone(ctx context.Context) error {
	for {
		var left int
		if err := s.scene.Pool.QueryRow(ctx, `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = ANY($1)`,
			s.scene.Applications).Scan(&left); err != nil {
			return fmt.Errorf("look for the workers' backends: %w", err)
		}
		if left == 0 {
			return nil
		}
		if err := undisturbed(ctx, 2*time.Millisecond); err != nil { // PostgreSQL tells nobody that they are gone
			return err
		}
	}
}
