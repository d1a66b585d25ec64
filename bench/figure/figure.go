// Package figure judges what was measured by its targets and writes it, for people and for programs.
package figure

import "github.com/fencepost-pg/fencepost/internal/bench/measure"

// Figure is one number, and what it is compared with.
type Figure struct {
	// Name says of whom the number is.
	Name string `json:"name"`
	// Value is a median over the rounds.
	Value float64 `json:"value"`
	// Unit is ms, calls/s, or "" for a mere ratio.
	Unit string `json:"unit"`
	// Against is what the ratio is to.
	Against string `json:"against"`
	// Ratio is the median of the ratios within each round.
	Ratio float64 `json:"ratio"`
	// Target is the ratio wanted; nil where none is.
	Target *float64 `json:"target"`
	// Met is false where there is a target and the ratio is on its wrong side.
	Met bool `json:"met"`

	middle measure.Spread
	want   Want
}

// Want says on which side of its target a ratio should be.
type Want string

// The sides.
const (
	AtLeast Want = ">="
	AtMost  Want = "<="
	Below   Want = "<"
)

// New makes a figure without a target.
func New(name, unit string, value measure.Spread, against string, ratio measure.Spread) Figure {
	return Figure{Name: name, Value: value.Median, Unit: unit, Against: against, Ratio: ratio.Median, Met: true, middle: ratio}
}

// Should gives the figure a target and judges it.
func (f Figure) Should(be Want, target float64) Figure {
	f.Target, f.want = &target, be
	switch be {
	case AtLeast:
		f.Met = f.Ratio >= target
	case AtMost:
		f.Met = f.Ratio <= target
	case Below:
		f.Met = f.Ratio < target
	default:
		f.Met = false
	}
	return f
}
