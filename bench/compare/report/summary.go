package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Summary says in a few sentences which modes lost something, and which did not. It counts, and does not
// judge.
func Summary(r *Report) []string {
	var sentences []string
	if r.Error != "" {
		sentences = append(sentences, "This run is NOT COMPLETE: "+r.Error)
	}
	for _, t := range tallies() {
		if modes := t.modes(r); len(modes) > 0 {
			sentences = append(sentences, t.what+": "+strings.Join(modes, ", ")+".")
		}
	}
	return sentences
}

// tally names the modes that did something, in any of their cells.
type tally struct {
	what  string
	count func(*Cell) int64
	unit  string // what is counted, one of it; where it is not said by what
	none  bool   // it names those that did not
}

func tallies() []tally {
	keyed := func(wanted bool) func(*Cell) int64 {
		return func(c *Cell) int64 {
			if c.Keyed != wanted {
				return 0
			}
			return c.Duplicates
		}
	}
	return []tally{
		{what: "Lost updates", unit: "row change", count: func(c *Cell) int64 { return c.LostUpdates }},
		{what: "Money made or lost by transfers", count: func(c *Cell) int64 { return c.Unbalanced }},
		{what: "Done more than once, without an idempotency key", count: keyed(false)},
		{what: "Done more than once, with one", count: keyed(true)},
		{
			what:  "Invoices there twice, though no reply was lost or there was a key",
			count: func(c *Cell) int64 { return c.Damage() - c.LostUpdates },
		},
		{what: "Nothing lost in any cell", count: func(c *Cell) int64 { return c.Damage() + c.Unbalanced }, none: true},
	}
}

// modes returns the names, each with its count.
func (t *tally) modes(r *Report) []string {
	var found []string
	for _, mode := range Modes() {
		var cells, sum int64
		for i := range r.Cells {
			if c := &r.Cells[i]; c.Mode == mode {
				cells++
				sum += t.count(c)
			}
		}
		switch {
		case t.none && cells > 0 && sum == 0:
			found = append(found, mode)
		case !t.none && sum > 0:
			found = append(found, fmt.Sprintf("%s (%s)", mode, t.amount(sum)))
		}
	}
	return found
}

func (t *tally) amount(n int64) string {
	text := fmt.Sprint(n)
	if t.unit != "" {
		text += " " + t.unit
	}
	if t.unit != "" && n != 1 {
		text += "s"
	}
	return text
}

// SettingsRows are the settings and versions for people, those that are not known left out.
func SettingsRows(r *Report) []Named {
	s := &r.Settings
	rows := []Named{
		{"command", s.Command},
		{"date", ""},
		{"seed", fmt.Sprint(s.Seed)},
		{"workers", fmt.Sprint(s.Workers)},
		{"a cell lasts", ""},
		{"a lease lasts", ""},
		{"fsync", s.Fsync},
		{"synchronous_commit", s.SynchronousCommit},
	}
	if !s.Date.IsZero() {
		rows[1].Meaning = s.Date.UTC().Format(time.RFC3339)
	}
	if s.DurationS > 0 {
		rows[4].Meaning = fmt.Sprintf("%g s, without the fault", s.DurationS)
	}
	if s.TTLS > 0 {
		rows[5].Meaning = fmt.Sprintf("%g s", s.TTLS)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		rows = append(rows, Named{name, r.Versions[name]})
	}
	return slices.DeleteFunc(rows, func(n Named) bool { return n.Meaning == "" })
}
