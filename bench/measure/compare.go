package measure

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Candidate is one way to do a job.
type Candidate struct {
	// Name tells it from the others, in tables and in JSON.
	Name string
	// Target is the ratio to the comparison's baseline that it should reach. 0: none.
	Target float64
	// Worker returns the call that one of the concurrent workers repeats. It is asked once per
	// worker, numbered from 0, so what the call remembers between calls is that worker's own.
	Worker func(worker int) func(ctx context.Context) error
	// Workers is how many goroutines call at the same time. 0: as many as the plan says.
	Workers int
	// Each is how many of the comparison's units one call does. 0: one.
	Each int
}

// Comparison is a job and the ways to do it.
type Comparison struct {
	Title string
	// Unit is what rates and allocations are counted for, in the singular. Default: call.
	Unit string
	// Candidates are measured against the first of them, the baseline.
	Candidates []Candidate
}

// Plan says how much to measure.
type Plan struct {
	// Rounds is how many slices each candidate gets, at least 1.
	Rounds int
	// Slice is how long a candidate runs in one round. Every worker makes at least one call.
	Slice time.Duration
	// WarmUp is how long each candidate runs before the rounds.
	WarmUp time.Duration
	// Workers is how many goroutines call at the same time, at least 1.
	Workers int
}

// Series is what was measured of one candidate: one sample per round.
type Series struct {
	Name    string
	Target  float64
	Samples []Sample
}

// Result is what was measured in one comparison, in the order of its candidates.
type Result struct {
	Title  string
	Unit   string
	Series []Series
}

// Compare measures the candidates of a comparison. Each first runs for a time that does not count, so that caches and
// connections fill. Compare ends with the first call that fails, and returns that error. ctx is passed to the calls and
// ends Compare as well.
func Compare(ctx context.Context, p Plan, c Comparison) (Result, error) {
	crews := make([]crew, len(c.Candidates))
	result := Result{Title: c.Title, Unit: cmp.Or(c.Unit, "call"), Series: make([]Series, len(c.Candidates))}
	for i, candidate := range c.Candidates {
		crews[i] = newCrew(candidate, cmp.Or(candidate.Workers, p.Workers))
		result.Series[i] = Series{Name: candidate.Name, Target: candidate.Target}
	}
	for i := range crews {
		if _, err := crews[i].run(ctx, p.WarmUp); err != nil {
			return Result{}, fmt.Errorf("%s: %w", c.Candidates[i].Name, err)
		}
	}
	for round := range p.Rounds {
		for turn := range crews {
			i := InTurn(round, turn, len(crews))
			sample, err := crews[i].run(ctx, p.Slice)
			if err != nil {
				return Result{}, fmt.Errorf("%s: %w", c.Candidates[i].Name, err)
			}
			result.Series[i].Samples = append(result.Series[i].Samples, sample)
		}
	}
	return result, nil
}

// InTurn returns which candidate has the given turn in a round, all counted from 0. Every second round runs
// backwards, so that a drift within the round favours nobody, and the start moves on, so that nobody always follows
// the same neighbour.
func InTurn(round, turn, candidates int) int {
	if round%2 == 1 {
		turn = candidates - 1 - turn
	}
	return (turn + round/2) % candidates
}
