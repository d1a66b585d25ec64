package handoff

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

// Sample is what was measured of a candidate in one round.
type Sample struct {
	// Median and Slow are the hand-off in milliseconds that half, and nine in ten, are not above.
	// 0 where the lock was never handed on to a client that waited.
	Median, Slow float64
	// Rate is how often the lock was taken, per second, by all clients together.
	Rate float64
	// Most is how often the luckiest client had the lock for each time that the unluckiest had it.
	// One that never had it counts as having had it once.
	Most float64
	// Stranded is how many clients were still waiting for a lock that nobody had held for a second.
	Stranded int
}

// reckon sums up one slice of the given length. What began after its end does not count.
func reckon(x slice, clients int, length time.Duration) Sample {
	turns := slices.DeleteFunc(slices.Clone(x.turns), func(t turn) bool { return t.got.After(x.end) })
	slices.SortFunc(turns, func(a, b turn) int { return a.got.Compare(b.got) })
	counts := make([]int, clients)
	var waits []float64
	for i, t := range turns {
		counts[t.client]++
		if i > 0 && t.asked.Before(turns[i-1].leaving) {
			waits = append(waits, t.got.Sub(turns[i-1].leaving).Seconds()*1000)
		}
	}
	s := Sample{
		Rate:     float64(len(turns)) / length.Seconds(),
		Most:     float64(max(slices.Max(counts), 1)) / float64(max(slices.Min(counts), 1)),
		Stranded: x.stranded,
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		s.Median, s.Slow = measure.SpreadOf(waits).Median, waits[len(waits)*9/10]
	}
	return s
}

// Series is what was measured of one candidate: one sample per round.
type Series struct {
	Name    string
	Samples []Sample
}

// Spread returns the quartiles over the rounds of what of picks from a sample.
func (s Series) Spread(of func(Sample) float64) measure.Spread {
	numbers := make([]float64, len(s.Samples))
	for i, sample := range s.Samples {
		numbers[i] = of(sample)
	}
	return measure.SpreadOf(numbers)
}

// Ratio compares a number of the samples with that of a baseline measured in the same rounds. Each
// round gives one ratio.
func (s Series) Ratio(baseline Series, of func(Sample) float64) measure.Spread {
	ratios := make([]float64, len(s.Samples))
	for i, sample := range s.Samples {
		ratios[i] = of(sample) / cmp.Or(of(baseline.Samples[i]), 1e-9) // nothing can be compared with nothing
	}
	return measure.SpreadOf(ratios)
}
