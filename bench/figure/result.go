package figure

import "github.com/fencepost-pg/fencepost/bench/measure"

// unitRate, unitAllocs and unitBytes are the units of a result's figures.
func unitRate(r measure.Result) string   { return r.Unit + "s/s" }
func unitAllocs(r measure.Result) string { return "allocs/" + r.Unit }
func unitBytes(r measure.Result) string  { return "bytes/" + r.Unit }

// OfResults returns three figures for each candidate: its rate, its heap allocations and their bytes. Each is
// compared with the first candidate of the same result. A candidate's target is the least ratio of its rate.
func OfResults(results []measure.Result) []Figure {
	var figures []Figure
	for _, r := range results {
		baseline := r.Series[0]
		for _, s := range r.Series {
			figures = append(figures, rate(r, s),
				count(s.Name, baseline.Name, ": allocations", unitAllocs(r), s.Allocs(), baseline.Allocs()),
				count(s.Name, baseline.Name, ": bytes", unitBytes(r), s.Bytes(), baseline.Bytes()))
		}
	}
	return figures
}

func rate(r measure.Result, s measure.Series) Figure {
	baseline := r.Series[0]
	f := New(s.Name, unitRate(r), s.Rate(), baseline.Name, s.Ratio(baseline))
	if s.Target != 0 {
		f = f.Should(AtLeast, s.Target)
	}
	return f
}

func count(name, against, what, unit string, value, baseline measure.Spread) Figure {
	ratio := 1.0 // nothing against nothing
	if value != baseline {
		ratio = value.Median / max(baseline.Median, 1e-9)
	}
	return New(name+what, unit, value, against+what, measure.Spread{Low: ratio, Median: ratio, High: ratio})
}
