package measure

import (
	"math"
	"slices"
)

// Spread is the middle of a set of numbers, and the quarters on both sides of it.
type Spread struct{ Low, Median, High float64 }

// SpreadOf returns the quartiles of at least one number, interpolated where they fall between two.
func SpreadOf(numbers []float64) Spread {
	sorted := slices.Sorted(slices.Values(numbers))
	return Spread{Low: quantile(sorted, 0.25), Median: quantile(sorted, 0.5), High: quantile(sorted, 0.75)}
}

func quantile(sorted []float64, share float64) float64 {
	at := share * float64(len(sorted)-1)
	below := math.Floor(at)
	low, high := sorted[int(below)], sorted[int(math.Ceil(at))]
	return low + (high-low)*(at-below)
}

// Rate returns the units per second of all rounds.
func (s Series) Rate() Spread { return s.spread(func(x Sample) float64 { return x.Rate }) }

// Allocs returns the heap allocations per unit of all rounds.
func (s Series) Allocs() Spread { return s.spread(func(x Sample) float64 { return x.Allocs }) }

// Bytes returns the bytes allocated per unit of all rounds.
func (s Series) Bytes() Spread { return s.spread(func(x Sample) float64 { return x.Bytes }) }

func (s Series) spread(of func(Sample) float64) Spread {
	numbers := make([]float64, len(s.Samples))
	for i, sample := range s.Samples {
		numbers[i] = of(sample)
	}
	return SpreadOf(numbers)
}

// Ratio compares the rate with that of a baseline measured in the same rounds. It is above 1 if the rate is higher.
// Each round gives one ratio.
func (s Series) Ratio(baseline Series) Spread {
	ratios := make([]float64, len(s.Samples))
	for i, sample := range s.Samples {
		ratios[i] = sample.Rate / baseline.Samples[i].Rate
	}
	return SpreadOf(ratios)
}
