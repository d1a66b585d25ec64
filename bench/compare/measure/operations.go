package measure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	bench "github.com/fencepost-pg/fencepost/bench/measure"
)

// rowsOfWorker is how many rows a worker has to itself.
const rowsOfWorker = 16

// apart returns a function that returns the next operation of a worker on rows that no other worker wants: a
// counter, or an invoice in the mode that can do nothing else.
func apart(name string, worker int) func() *work.Operation {
	workload := workloadOf(name)
	next := work.Plan{Workload: workload, Seed: rand.Uint64(), Worker: worker}.Operations()
	first := int64(worker*rowsOfWorker) + 1
	turn := int64(-1)
	return func() *work.Operation {
		op := next()
		if workload == work.Invoice {
			op.Rows[0] = rand.Int64() // no other worker's
			return op
		}
		turn = (turn + 1) % rowsOfWorker
		op.Rows = []int64{first + turn}
		op.Resource = fmt.Sprintf("counter:%d", op.Rows[0])
		return op
	}
}

func workloadOf(name string) work.Workload {
	if mode.LeftOut(name, work.Counter, false) != "" {
		return work.Invoice
	}
	return work.Counter
}

// persist does an operation within its time limit, and returns an error for any outcome but success.
func (m *measurer) persist(ctx context.Context, in mode.Mode, op *work.Operation) error {
	ctx, cancel := within(ctx, m.options.Limits.Operation, "an operation")
	defer cancel()
	outcome, err := mode.Persist(ctx, in, op, attempt, nil)
	if outcome != mode.Accepted {
		return fmt.Errorf("operation %s: %s: %w", op.ID, outcome, explained(ctx, err))
	}
	return nil
}

// latencies are how long calls took. They are safe for concurrent use.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

// time runs call and remembers how long it took.
func (l *latencies) time(call func() error) error {
	began := time.Now()
	err := call()
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, took)
	return err
}

// forget deletes all recorded times.
func (l *latencies) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = l.all[:0]
}

// quantileMS returns the time in milliseconds that a share of the calls took at most.
func (l *latencies) quantileMS(share float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.all))
	return milliseconds(sorted[int(share*float64(len(sorted)-1)+0.5)])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// operations measures how many operations each mode does, and how long one takes, if workers do not compete.
func (m *measurer) operations(ctx context.Context) error {
	took := make(map[string]*latencies)
	var c bench.Comparison
	for _, name := range m.options.Modes {
		opened, err := m.open(ctx, name, workers+1, nil) // an advisory session takes one for itself
		if err != nil {
			return err
		}
		defer opened.Close()
		l := &latencies{}
		took[name] = l
		c.Candidates = append(c.Candidates, bench.Candidate{Name: name, Worker: func(worker int) func(context.Context) error {
			next := apart(name, worker)
			return func(ctx context.Context) error {
				op := next()
				return l.time(func() error { return m.persist(ctx, opened, op) })
			}
		}})
	}
	// Connections are opened and statements prepared before anything counts.
	warmUp := bench.Plan{Rounds: 1, Slice: m.plan.operations.WarmUp, Workers: workers}
	if _, err := bench.Compare(ctx, warmUp, c); err != nil {
		return err
	}
	for _, l := range took {
		l.forget()
	}
	counted := m.plan.operations
	counted.WarmUp = 0
	result, err := bench.Compare(ctx, counted, c)
	if err != nil {
		return err
	}
	for _, s := range result.Series {
		f := m.figures[s.Name]
		f.OpsPerS, f.P50MS, f.P99MS = s.Rate().Median, took[s.Name].quantileMS(0.5), took[s.Name].quantileMS(0.99)
	}
	return nil
}
