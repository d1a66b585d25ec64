package handoff

import (
	"context"
	"fmt"
	"runtime"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// Candidate is one kind of lock and its clients.
type Candidate struct {
	// Name tells it from the others.
	Name string
	// Clients are those who want the lock.
	Clients []Lock
}

// Compare lets the candidates play in turn and returns what was measured, in their order. Each has one
// slice that does not count, for caches and connections to fill. It ends with the first error: of a
// call, ErrShared, or the end of ctx.
func Compare(ctx context.Context, p Plan, candidates []Candidate) ([]Series, error) {
	series := make([]Series, len(candidates))
	for i, c := range candidates {
		series[i].Name = c.Name
	}
	for round := -1; round < p.Rounds; round++ { // round -1 warms up
		for turn := range candidates {
			i := measure.InTurn(max(round, 0), turn, len(candidates))
			runtime.GC() // a candidate does not clean up after the one before it
			played, err := play(ctx, p, candidates[i].Clients)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", candidates[i].Name, err)
			}
			if round >= 0 {
				series[i].Samples = append(series[i].Samples, reckon(played, len(candidates[i].Clients), p.Slice))
			}
		}
	}
	return series, nil
}
