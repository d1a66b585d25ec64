package cell

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/check"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/bench/torture/nemesis"
	"github.com/fencepost-pg/fencepost/bench/wait"
)

// Options are the settings of a cell.
type Options struct {
	Mode     load.Mode
	Workload load.Workload
	// Faults is a list for [nemesis.Choose].
	Faults string
	Seed   uint64
	// Duration is how long faults are made. The workers then go on for Within, in which each resource must be served.
	Duration, Within time.Duration
	Workers, Threads int
	// Groups is how many resources there are.
	Groups int
	TTL    time.Duration
	// Worker starts a process that calls load.Run.
	Worker []string
	// Folder is where the history is kept.
	Folder string
}

// Name names the cell in reports.
func (o *Options) Name() string { return fmt.Sprintf("%s-%s-%s", o.Workload, o.Mode, o.Faults) }

// Result is what came of a cell.
type Result struct {
	Mode     load.Mode     `json:"mode"`
	Workload load.Workload `json:"workload"`
	Faults   string        `json:"faults"`
	Seed     uint64        `json:"seed"`
	// Ops counts the operations that were checked, by outcome. Struck counts the faults by name.
	Ops    map[history.Outcome]int `json:"ops"`
	Struck map[string]int          `json:"struck"`
	// Missed counts the faults that found nothing to break.
	Missed   int             `json:"missed"`
	Verdicts []check.Verdict `json:"verdicts"`
	Took     time.Duration   `json:"took"`
}

// Broken returns the verdicts of the checks that failed.
func (r *Result) Broken() (broken []check.Verdict) {
	for _, v := range r.Verdicts {
		if v.Result == check.Broken {
			broken = append(broken, v)
		}
	}
	return broken
}

// Expected reports whether the result is as it should be: nothing is broken. Without a fence a lease's work is not
// safe, so there it does not matter.
func (r *Result) Expected() bool { return !r.Mode.Fenced() || len(r.Broken()) == 0 }

// Run runs a cell, and checks it. The history is returned with the result.
func Run(ctx context.Context, lab *Lab, o *Options) (*Result, *history.History, error) {
	began := time.Now()
	faults, err := nemesis.Choose(o.Faults, o.Mode.Servers())
	if err != nil {
		return nil, nil, err
	}
	s := &stage{lab: lab, options: o}
	h, err := s.run(ctx, faults)
	if err := errors.Join(err, s.close()); err != nil {
		return nil, nil, fmt.Errorf("cell %s, seed %d: %w", o.Name(), o.Seed, err)
	}
	h.Fenced, h.Kept = o.Mode.Fenced(), nemesis.Kept(faults)
	r := &Result{
		Mode: o.Mode, Workload: o.Workload, Faults: o.Faults, Seed: o.Seed,
		Ops: map[history.Outcome]int{}, Struck: map[string]int{},
		Verdicts: check.Every(h), Took: time.Since(began),
	}
	for _, op := range h.Ops {
		outcome := op.Outcome
		if outcome == "" {
			outcome = history.Unknown
		}
		r.Ops[outcome]++
	}
	for _, f := range h.Faults {
		if f.Error != "" {
			r.Missed++
			continue
		}
		r.Struck[f.Name]++
	}
	return r, h, nil
}

// seedOf makes a cell's own seed from the run's.
func seedOf(o *Options) uint64 {
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%d %s", o.Seed, o.Name()) // a hash returns no error
	return sum.Sum64()
}

// run does everything between the making of the stage and its end.
func (s *stage) run(ctx context.Context, faults []nemesis.Fault) (*history.History, error) {
	if err := s.build(ctx); err != nil {
		return nil, err
	}
	struck, err := nemesis.Run(ctx, &s.scene, faults, s.options.Duration)
	if err != nil {
		return nil, err
	}
	if err := wait.For(ctx, s.options.Within); err != nil {
		return nil, err
	}
	h := &history.History{Faults: struck}
	h.Ending.Within = s.options.Within
	if err := s.end(ctx, h); err != nil {
		return nil, err
	}
	return h, nil
}
