// Package report says what came of a torture run: lines while it runs, JSON, the table of docs/safety.md, and a picture
// of what led to a broken promise.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/cell"
	"github.com/fencepost-pg/fencepost/bench/torture/check"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// Report is a whole run.
type Report struct {
	Date     time.Time         `json:"date"`
	Seed     uint64            `json:"seed"`
	Versions map[string]string `json:"versions"`
	Cells    []*cell.Result    `json:"cells"`
}

// Expected reports whether all cells are as they should be.
func (r *Report) Expected() bool {
	return !slices.ContainsFunc(r.Cells, func(c *cell.Result) bool { return !c.Expected() })
}

// JSON returns the report as an indented document.
func (r *Report) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the report: %w", err)
	}
	return append(text, '\n'), nil
}

// Line returns a line for a cell, and one for each check that failed.
func Line(c *cell.Result) string {
	var b strings.Builder
	end := "holds"
	if len(c.Broken()) > 0 {
		end = "BROKEN"
	}
	_, _ = fmt.Fprintf(&b, "%-9s %-9s %-8s %6d ok %5d refused %4d unknown %4d faults %4.0f s  %s\n", c.Mode, c.Workload,
		c.Faults, c.Ops[history.OK], c.Ops[history.Refused], c.Ops[history.Unknown], sum(c.Struck), c.Took.Seconds(), end)
	for _, v := range c.Broken() {
		_, _ = fmt.Fprintf(&b, "    %-12s %4d times, first: %s\n", v.Check, v.Count, v.Why)
	}
	return b.String()
}

func sum[K comparable](counts map[K]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// Markdown returns the run as a paragraph and a table.
func (r *Report) Markdown() string {
	var b strings.Builder
	ops, struck := 0, map[string]int{}
	for _, c := range r.Cells {
		if c.Mode.Fenced() {
			ops += sum(c.Ops)
		}
		for name, n := range c.Struck {
			struck[name] += n
		}
	}
	_, _ = fmt.Fprintf(&b, "%s, seed %d. PostgreSQL %s; Redis %s. In the fenced modes %d operations were checked.\n",
		r.Date.Format(time.DateOnly), r.Seed, version(r.Versions["postgres"]), version(r.Versions["redis"]), ops)
	_, _ = fmt.Fprintf(&b, "%d faults were made in all:\n%s.\n\n", sum(struck), strings.Join(wrapped(struck), ",\n"))
	b.WriteString("| mode | workload | faults | ok | refused | unknown | faults made | broken |\n")
	b.WriteString("| --- | --- | --- | ---: | ---: | ---: | ---: | --- |\n")
	for _, c := range r.Cells {
		_, _ = fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d | %s |\n", c.Mode, c.Workload, c.Faults,
			c.Ops[history.OK], c.Ops[history.Refused], c.Ops[history.Unknown], sum(c.Struck), broken(c))
	}
	return b.String()
}

// version is the first word of what describes a server: a description also says where it was found.
func version(description string) string {
	first, _, _ := strings.Cut(description, ",")
	return first
}

// perLine is how many faults stand in a line.
const perLine = 6

func wrapped(struck map[string]int) (lines []string) {
	names := slices.Sorted(maps.Keys(struck))
	for part := range slices.Chunk(names, perLine) {
		var counts []string
		for _, name := range part {
			counts = append(counts, fmt.Sprintf("%s %d", name, struck[name]))
		}
		lines = append(lines, strings.Join(counts, ", "))
	}
	return lines
}

func broken(c *cell.Result) string {
	var names []string
	for _, v := range c.Verdicts {
		switch {
		case v.Result == check.Broken:
			names = append(names, fmt.Sprintf("%s (%d)", v.Check, v.Count))
		case v.Result == check.NotDecided && v.Check == "linearizable" && isOfRows(c):
			names = append(names, v.Check+" not decided")
		}
	}
	return cmp.Or(strings.Join(names, ", "), "nothing")
}

// isOfRows reports whether the check of single rows had something to decide: elsewhere it never has.
func isOfRows(c *cell.Result) bool {
	return slices.Contains([]string{"register", "counter", "set", "batch"}, string(c.Workload))
}
