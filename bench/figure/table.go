package figure

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fencepost-pg/fencepost/bench/measure"
)

const legend = `
ratio: the rate to that of the first line, median of the rounds' own ratios; middle half: where half of
the rounds lie. allocs and bytes: on the heap of this process, per call (or lease, where the rate is of leases).
`

// Results writes what was measured for people. A target that was missed stays in it, with its true ratio.
func Results(w io.Writer, results []measure.Result) error {
	for _, r := range results {
		var lines []string
		for _, s := range r.Series {
			f, target := rate(r, s), "-"
			if f.Target != nil {
				target = fmt.Sprintf("%.2f", *f.Target)
			}
			lines = append(lines, fmt.Sprintf("%.0f\t%.3f\t%.3f to %.3f\t%s\t%s\t%.0f\t%.0f\t   %s",
				f.Value, f.Ratio, f.middle.Low, f.middle.High, target, f.verdict(), s.Allocs().Median, s.Bytes().Median, s.Name))
		}
		if err := Table(w, r.Title, unitRate(r)+"\tratio\tmiddle half\ttarget\tmet\tallocs\tbytes", lines); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, legend)
	return err
}

// Targets writes those figures that have a target, each on a line with its ratio, met or not.
func Targets(w io.Writer, figures []Figure) error {
	var lines []string
	for _, f := range figures {
		if f.Target != nil {
			lines = append(lines, fmt.Sprintf("%.3f\t%.3f to %.3f\t%s %.2f\t%s\t   %s, to %s",
				f.Ratio, f.middle.Low, f.middle.High, f.want, *f.Target, f.verdict(), f.Name, f.Against))
		}
	}
	return Table(
		w,
		"targets (each ratio is the median of the rounds' own ratios)",
		"ratio\tmiddle half\ttarget\tmet",
		lines,
	)
}

// Table writes a title, a header and lines, whose cells are separated by tabs. The last cell of a line is a name:
// it has no header.
func Table(w io.Writer, title, header string, lines []string) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", title); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	// The last cell of a line has no tab and is not aligned.
	for _, line := range append([]string{header + "\t"}, lines...) {
		if _, err := fmt.Fprintf(t, "  %s\n", line); err != nil {
			return err
		}
	}
	return t.Flush()
}
