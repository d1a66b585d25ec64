package page

import (
	"fmt"
	"strings"

	"github.com/fencepost-pg/fencepost/bench/figure"
)

func marks(suite string) (begin, end string) {
	return "<!-- figures of " + suite + ": begin -->\n", "<!-- figures of " + suite + ": end -->\n"
}

// Fill returns the page with a text in the block of a suite, in place of the text that was there.
func Fill(text, suite, with string) (string, error) {
	before, _, after, err := split(text, suite)
	begin, end := marks(suite)
	return before + begin + "\n" + with + "\n" + end + after, err
}

func split(text, suite string) (before, block, after string, err error) {
	begin, end := marks(suite)
	before, rest, began := strings.Cut(text, begin)
	block, after, ended := strings.Cut(rest, end)
	if !began || !ended {
		err = fmt.Errorf("the page has no block of %s: it is between %q and %q", suite, begin, end)
	}
	return before, block, after, err
}

// Rows returns what the rows of a suite's table say their figures are, and what they are compared with, without the
// numbers.
func Rows(text, suite string) ([]string, error) {
	_, block, _, err := split(text, suite)
	var rows []string
	for line := range strings.Lines(block) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) < 3 || strings.HasPrefix(cells[0], "| ---") || cells[0] == "| figure" {
			continue
		}
		row := strings.TrimPrefix(cells[0], "| ")
		if to := strings.TrimSpace(strings.TrimSuffix(cells[len(cells)-1], "|")); to != "" {
			row += ", to " + to
		}
		rows = append(rows, row)
	}
	return rows, err
}

// RowsOf returns the same of figures.
func RowsOf(figures []figure.Figure) []string {
	begin, end := marks("these")
	rows, _ := Rows(begin+Table(figures)+end, "these") // never fails
	return rows
}
