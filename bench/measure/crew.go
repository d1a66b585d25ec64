package measure

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Sample is what was measured of a candidate in one round.
type Sample struct {
	// Rate is the comparison's units per second, of all workers together.
	Rate float64
	// Allocs and Bytes are heap allocations per unit, and their size.
	Allocs, Bytes float64
}

// crew is the workers of one candidate.
type crew struct {
	calls []func(ctx context.Context) error
	each  int // how many units one call does
}

func newCrew(c Candidate, workers int) crew {
	calls := make([]func(ctx context.Context) error, workers)
	for i := range calls {
		calls[i] = c.Worker(i)
	}
	return crew{calls: calls, each: cmp.Or(c.Each, 1)}
}

// run lets all workers call for the time of a slice.
func (c crew) run(ctx context.Context, slice time.Duration) (Sample, error) {
	var before, after runtime.MemStats
	runtime.GC() // a candidate does not clean up after the one before it
	runtime.ReadMemStats(&before)
	done, err := c.call(ctx, slice)
	runtime.ReadMemStats(&after)
	if err != nil {
		return Sample{}, err
	}
	var s Sample
	units := 0
	for _, d := range done {
		units += c.each * d.calls
		s.Rate += float64(c.each*d.calls) / d.took.Seconds()
	}
	s.Allocs = float64(after.Mallocs-before.Mallocs) / float64(units)
	s.Bytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(units)
	return s, nil
}

// work is what one worker did in a slice. Its last call may end after the others', so each worker has a
// time of its own.
type work struct {
	calls int
	took  time.Duration
}

func (c crew) call(ctx context.Context, slice time.Duration) ([]work, error) {
	done, errs := make([]work, len(c.calls)), make([]error, len(c.calls))
	var over atomic.Bool
	timer := time.AfterFunc(slice, func() { over.Store(true) })
	defer timer.Stop()
	var all sync.WaitGroup
	for i, call := range c.calls {
		all.Go(func() {
			n, began := 0, time.Now()
			for n == 0 || !over.Load() {
				if err := call(ctx); err != nil {
					errs[i] = err
					over.Store(true)
					return
				}
				n++
			}
			done[i] = work{calls: n, took: time.Since(began)}
		})
	}
	all.Wait()
	return done, errors.Join(errs...)
}
