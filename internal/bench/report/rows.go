package report

import "github.com/fencepost-pg/fencepost/internal/bench/measure"

// Row is one figure, as JSON has it.
type Row struct {
	// Name is the candidate's, with ": allocations" or ": bytes" where that is what was counted.
	Name string `json:"name"`
	// Value is a median over the rounds.
	Value float64 `json:"value"`
	// Unit is calls/s, allocs/call or bytes/call.
	Unit string `json:"unit"`
	// Against is the name of the baseline's figure; a baseline stands against itself.
	Against string `json:"against"`
	// Ratio is Value to the baseline's. For calls/s it is the median of the ratios within each
	// round, which is not quite the ratio of the two medians.
	Ratio float64 `json:"ratio"`
	// Target is the least ratio wanted; nil where none is.
	Target *float64 `json:"target"`
	// Met says whether the target was reached; nil where there is none.
	Met *bool `json:"met"`
}

// The units of figures.
const (
	unitRate   = "calls/s"
	unitAllocs = "allocs/call"
	unitBytes  = "bytes/call"
)

// Rows returns the figures of all results: for each candidate its rate, its allocations and their bytes.
func Rows(results []measure.Result) []Row {
	rows := []Row{}
	for _, r := range results {
		baseline := r.Series[0]
		for _, s := range r.Series {
			rows = append(rows, rateRow(s, baseline),
				countRow(s.Name, baseline.Name, ": allocations", unitAllocs, s.Allocs(), baseline.Allocs()),
				countRow(s.Name, baseline.Name, ": bytes", unitBytes, s.Bytes(), baseline.Bytes()))
		}
	}
	return rows
}

func rateRow(s, baseline measure.Series) Row {
	row := Row{
		Name: s.Name, Value: s.Rate().Median, Unit: unitRate,
		Against: baseline.Name, Ratio: s.Ratio(baseline).Median,
	}
	if s.Target != 0 {
		reached := met(s, baseline)
		row.Target, row.Met = &s.Target, &reached
	}
	return row
}

func met(s, baseline measure.Series) bool { return s.Ratio(baseline).Median >= s.Target }

func countRow(name, against, what, unit string, value, baseline measure.Spread) Row {
	ratio := 1.0 // nothing against nothing
	if value != baseline {
		ratio = value.Median / max(baseline.Median, 1e-9)
	}
	return Row{Name: name + what, Value: value.Median, Unit: unit, Against: against + what, Ratio: ratio}
}
