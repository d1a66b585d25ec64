package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/figure"
)

// wanted is the operation that everybody wants to do at the same time.
func wanted(name string, worker int) *work.Operation {
	op := apart(name, worker)()
	if op.Workload != work.Invoice { // each of a number of its own: nobody waits
		op.Rows, op.Resource = []int64{1}, "counter:1"
	}
	return op
}

// waiters counts the connections that are held by those who wait for their turn while somebody holds it: waiters
// that each have a pool of their own, as processes have, and waiters that share one.
func (m *measurer) waiters(ctx context.Context, name string) error {
	alone, err := m.held(ctx, name, workers-1, 1)
	if err != nil {
		return err
	}
	m.figures[name].ConnectionsHeld = alone / float64(workers-1)
	together, err := m.held(ctx, name, 1, workers-1)
	if err != nil {
		return err
	}
	if !slices.Contains(waitWithThought(), name) {
		return nil
	}
	m.rows = append(m.rows, report.Figure{Figure: figure.Figure{
		Name:  fmt.Sprintf("connections held by %d waiters of one pool: %s", workers-1, name),
		Value: together, Unit: "connections",
		Against: fmt.Sprintf("%d waiters, each with a pool of its own: %s", workers-1, name), Ratio: ratio(together, alone),
	}})
	return nil
}

// waitWithThought are the modes of which it says something how many connections their waiters hold: those that wait
// in PostgreSQL, and those that are there so that nobody does.
func waitWithThought() []string {
	return []string{mode.RedisLease, mode.RedisQuorum, mode.AdvisoryXact, mode.AdvisorySession, mode.ForUpdate}
}

// restless is how many periods of plan.settle the waiters may keep changing before they are counted anyway.
const restless = 20

// ratio is 1 of nothing to nothing.
func ratio(value, against float64) float64 {
	if value == against {
		return 1
	}
	return value / max(against, 1e-9)
}

// held returns how many connections are held, on average, while one holds what others wait for, in so many pools
// with so many goroutines each.
func (m *measurer) held(ctx context.Context, name string, pools, each int) (connections float64, err error) {
	opened, closeAll, err := m.pools(ctx, name, 1+pools, int32(each)+1) //nolint:gosec // it is small
	if err != nil {
		return 0, err
	}
	defer closeAll()
	holder, waiting := opened[0], opened[1:]
	inside, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	errs := make(chan error, 1+pools*each)
	run := func(in mode.Mode, op *work.Operation) { all.Go(func() { errs <- m.persist(ctx, in, op) }) }
	held := wanted(name, 0)
	enter := sync.OnceFunc(func() { close(inside) })
	held.Between = func(ctx context.Context) error {
		enter()
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	run(holder, held)
	select {
	case <-inside:
		for i, w := range waiting {
			for j := range each {
				run(w, wanted(name, 1+i*each+j))
			}
		}
		connections = m.sample(ctx, waiting)
	case err = <-errs:
	}
	close(leave)
	all.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return connections, err
}

// pools opens a mode so many times, each with pools of its own as a process has, and has each do something.
func (m *measurer) pools(
	ctx context.Context,
	name string,
	n int,
	connections int32,
) (opened []mode.Mode, closeAll func(), err error) {
	closeAll = func() {
		for _, o := range opened {
			o.Close()
		}
	}
	for worker := range n {
		o, err := m.open(ctx, name, connections, nil)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		opened = append(opened, o)
		if err := m.persist(ctx, o, apart(name, worker)()); err != nil {
			closeAll()
			return nil, nil, err
		}
	}
	return opened, closeAll, nil
}

// sample looks at waiters once they have come to rest.
func (m *measurer) sample(ctx context.Context, waiting []mode.Mode) float64 {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	var sum, samples, last int
	for began, rest := time.Now(), time.Now(); ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return 0
		}
		held := 0
		for _, w := range waiting {
			held += w.ConnectionsHeld()
		}
		if held != last && time.Since(began) < restless*m.plan.settle {
			last, rest, sum, samples = held, time.Now(), 0, 0
		}
		switch quiet := time.Since(rest); {
		case quiet > m.plan.settle+m.plan.watch && samples > 0:
			return float64(sum) / float64(samples)
		case quiet > m.plan.settle:
			sum, samples = sum+held, samples+1
		}
	}
}

// handOff measures how long an operation takes, the wait for its turn included, where workers with a pool each want
// one row all the time.
func (m *measurer) handOff(ctx context.Context, name string) error {
	opened, closeAll, err := m.pools(ctx, name, workers, 2)
	if err != nil {
		return err
	}
	defer closeAll()
	var took latencies
	errs := make([]error, workers)
	var all sync.WaitGroup
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	for worker, o := range opened {
		all.Go(func() {
			for errs[worker] == nil && time.Since(began) < m.plan.handOff {
				errs[worker] = took.time(func() error { return m.persist(bounded, o, wanted(name, worker)) })
			}
			if errs[worker] != nil {
				cancel() // the others too
			}
		})
	}
	all.Wait()
	m.handOffs[name] = &took
	return errors.Join(errs...)
}

// compareHandOffs sets the hand-offs against those of a row lock, or where it was not measured, of the common
// recipe, or else of the first mode: all have the same contention.
func (m *measurer) compareHandOffs() {
	var against string
	for _, name := range slices.Concat([]string{mode.ForUpdate, mode.RedisLock}, m.options.Modes) {
		if m.handOffs[name] != nil {
			against = name
			break
		}
	}
	// A lock that its last holder takes again at once has a short median, and a long wait for the others.
	for _, name := range m.options.Modes {
		took := m.handOffs[name]
		if took == nil {
			continue
		}
		for _, q := range []struct {
			name  string
			share float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			title, value := fmt.Sprintf("hand-off among %d pools, %s: ", workers, q.name), took.quantileMS(q.share)
			m.rows = append(m.rows, report.Figure{Figure: figure.Figure{
				Name: title + name, Value: value, Unit: "ms",
				Against: title + against, Ratio: ratio(value, m.handOffs[against].quantileMS(q.share)),
			}})
		}
	}
}
