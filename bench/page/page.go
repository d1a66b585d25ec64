// Package page writes figures into a page of the documentation, as tables of Markdown.
//
// A page has a block for each suite, between two comments that [Fill] looks for. What is outside the blocks is written
// by people.
package page

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-pg/fencepost/bench/figure"
)

// ErrRuns says that the files are not runs of one and the same command.
var ErrRuns = errors.New("the runs do not have the same figures")

// Middle returns, of several runs with the same figures, each figure as the run had it whose ratio is the middle one.
// Of an even number of runs it is the lower of the two.
func Middle(runs ...[]figure.Figure) ([]figure.Figure, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	middle := slices.Clone(runs[0])
	for i := range middle {
		var same []figure.Figure
		for _, run := range runs {
			if len(run) != len(middle) || !sameFigure(run[i], middle[i]) {
				return nil, fmt.Errorf("%w: %q", ErrRuns, middle[i].Name)
			}
			same = append(same, run[i])
		}
		slices.SortStableFunc(same, func(a, b figure.Figure) int { return cmp.Compare(a.Ratio, b.Ratio) })
		middle[i] = same[(len(same)-1)/2]
	}
	return middle, nil
}

func sameFigure(a, b figure.Figure) bool {
	return a.Name == b.Name && a.Against == b.Against && a.Unit == b.Unit
}

// Table returns the figures as a table. Allocations are in the row of the rate that they belong to; their bytes are
// left out.
func Table(figures []figure.Figure) string {
	var b strings.Builder
	b.WriteString("| figure | value | ratio | target | met | allocations | to |\n")
	b.WriteString("| --- | ---: | ---: | ---: | --- | ---: | --- |\n")
	for _, f := range figures {
		if isCount(f) {
			continue
		}
		target, met := "", ""
		if f.Target != nil && f.Met != nil {
			target = side(f) + " " + fmt.Sprintf("%.2f", *f.Target)
			met = map[bool]string{true: "yes", false: "**no**"}[*f.Met]
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f | %s | %s | %s | %s |\n",
			f.Name, value(f), f.Ratio, target, met, allocations(figures, f), against(f))
	}
	return b.String()
}

// isCount reports whether a figure belongs to the row of another.
func isCount(f figure.Figure) bool {
	return strings.HasPrefix(f.Unit, "allocs/") || strings.HasPrefix(f.Unit, "bytes/") &&
		strings.HasSuffix(f.Name, ": bytes")
}

// side is on which side of its target a ratio is wanted: rates should be high, and all else low.
func side(f figure.Figure) string {
	if strings.HasSuffix(f.Unit, "/s") {
		return "≥"
	}
	return "≤"
}

// against is empty for a baseline, which is compared with itself.
func against(f figure.Figure) string {
	if f.Against == f.Name {
		return ""
	}
	return f.Against
}

// value has three digits that matter.
func value(f figure.Figure) string {
	digits := 2
	switch {
	case f.Value >= 100:
		digits = 0
	case f.Value >= 10:
		digits = 1
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s", digits, f.Value, f.Unit))
}

// allocations finds those of a candidate. Names are used again in other comparisons, but not together with what they
// are compared with.
func allocations(figures []figure.Figure, of figure.Figure) string {
	for _, f := range figures {
		if strings.HasPrefix(f.Unit, "allocs/") &&
			strings.HasPrefix(f.Name, of.Name+":") && strings.HasPrefix(f.Against, of.Against+":") {
			return fmt.Sprintf("%.0f", f.Value)
		}
	}
	return ""
}
