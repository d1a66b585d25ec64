// Package figure compares what was measured with its targets and writes it, for people and for programs.
package figure

import "github.com/fencepost-pg/fencepost/bench/measure"

// Figure is one number, and what it is compared with. Its JSON form is the same for every benchmark command.
type Figure struct {
	// Name says whose number it is.
	Name string `json:"name"`
	// Value is a median over the rounds.
	Value float64 `json:"value"`
	// Unit is ms, calls/s, allocs/call, bytes/call and the like, or "" for a mere ratio.
	Unit string `json:"unit"`
	// Against names what the ratio is to. A baseline is compared with itself.
	Against string `json:"against"`
	// Ratio is the median of the ratios within each round, which is not quite the ratio of two medians.
	Ratio float64 `json:"ratio"`
	// Target is the ratio wanted; nil if there is none.
	Target *float64 `json:"target"`
	// Met says whether the ratio is on the wanted side of the target; nil if there is no target.
	Met *bool `json:"met"`

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
	return Figure{Name: name, Value: value.Median, Unit: unit, Against: against, Ratio: ratio.Median, middle: ratio}
}

// Should returns the figure with a target, and whether it meets it.
func (f Figure) Should(be Want, target float64) Figure {
	met := be.holds(f.Ratio, target)
	f.Target, f.want, f.Met = &target, be, &met
	return f
}

func (w Want) holds(ratio, target float64) bool {
	switch w {
	case AtLeast:
		return ratio >= target
	case AtMost:
		return ratio <= target
	case Below:
		return ratio < target
	default:
		return false
	}
}

// verdict is for tables: "-" without a target.
func (f Figure) verdict() string {
	switch {
	case f.Met == nil:
		return "-"
	case *f.Met:
		return "yes"
	default:
		return "NO"
	}
}
