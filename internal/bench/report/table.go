package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fencepost-pg/fencepost/internal/bench/measure"
)

const legend = `
ratio: calls/s to those of the first line, median of the rounds' own ratios; middle half: where half of
the rounds lie. allocs and bytes: on the heap of this process, per call.
`

// Table writes all figures for people. A target that was missed stays in it, with its true ratio.
func Table(w io.Writer, results []measure.Result) error {
	for _, r := range results {
		if _, err := fmt.Fprintf(w, "\n%s\n", r.Title); err != nil {
			return err
		}
		if err := section(w, r); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, legend)
	return err
}

func section(w io.Writer, r measure.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	// The last cell of a line has no tab and is not aligned: it stays empty.
	_, err := fmt.Fprint(t, "  calls/s\tratio\tmiddle half\ttarget\tmet\tallocs\tbytes\t\n")
	if err != nil {
		return err
	}
	baseline := r.Series[0]
	for _, s := range r.Series {
		ratio, target, verdict := s.Ratio(baseline), "-", "-"
		if s.Target != 0 {
			target, verdict = fmt.Sprintf("%.2f", s.Target), "NO"
			if met(s, baseline) {
				verdict = "yes"
			}
		}
		_, err := fmt.Fprintf(t, "  %.0f\t%.3f\t%.3f to %.3f\t%s\t%s\t%.0f\t%.0f\t   %s\n",
			s.Rate().Median, ratio.Median, ratio.Low, ratio.High, target, verdict, s.Allocs().Median, s.Bytes().Median, s.Name)
		if err != nil {
			return err
		}
	}
	return t.Flush()
}
