package handoff

import (
	"context"
	"fmt"
	"runtime"
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
			i := inTurn(round, turn, len(candidates))
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

// inTurn returns which candidate has the given turn in a round: every second round runs backwards, and the
// start moves on, so that neither drift nor a neighbour favours anybody.
func inTurn(round, turn, candidates int) int {
	round = max(round, 0)
	if round%2 == 1 {
		turn = candidates - 1 - turn
	}
	return (turn + round/2) % candidates
}
