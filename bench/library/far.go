package library

import (
	"context"
	"time"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// FarBy is what the longer way of [Servers].Far adds to each round trip.
const FarBy = 500 * time.Microsecond

// far is a figure measured over the longer way. Of its targets none holds there but those that are given by the names
// of candidates.
func far(
	prepare func(context.Context, Servers) (measure.Comparison, error),
	targets map[string]float64,
) func(context.Context, Servers) (measure.Comparison, error) {
	return func(ctx context.Context, s Servers) (measure.Comparison, error) {
		c, err := prepare(ctx, *s.Far)
		c.Title += "; " + FarBy.String() + " added to every round trip"
		for i := range c.Candidates {
			at := &c.Candidates[i]
			at.Name, at.Target = at.Name+FarSuffix, targets[at.Name]
		}
		return c, err
	}
}

// FarSuffix ends the names of candidates that are measured over the longer way.
const FarSuffix = " (+0.5 ms a trip)"
