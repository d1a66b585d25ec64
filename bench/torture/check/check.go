package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// Result is one of the three values of a verdict.
type Result string

// The results.
const (
	Holds      Result = "holds"
	Broken     Result = "broken"
	NotDecided Result = "not decided"
)

// Verdict is what a check says of a history.
type Verdict struct {
	Check  string `json:"check"`
	Result Result `json:"result"`
	// Why says what is broken, or why nothing was decided.
	Why string `json:"why,omitempty"`
	// Ops are the IDs of the operations that show it, the one that does it last, and Row is where.
	Ops []string `json:"ops,omitempty"`
	Row string   `json:"row,omitempty"`
	// Count is how often it was found.
	Count int `json:"count,omitempty"`
}

// Check is one of the checks.
type Check struct {
	Name string
	// Says is the promise, for people.
	Says string
	run  func(*history.History) Verdict
}

// Run decides about a history.
func (c Check) Run(h *history.History) Verdict {
	v := c.run(h)
	v.Check = c.Name
	if v.Result == "" {
		v.Result = Holds
		if v.Count > 0 {
			v.Result = Broken
		}
	}
	return v
}

// All returns all checks.
func All() []Check {
	return []Check{
		{"tokens", "the tokens that a row accepts never fall", tokens},
		{"one-holder", "no two holders write under one token", oneHolder},
		{"acknowledged", "what was acknowledged was written once, and what was refused was not", acknowledged},
		{"lost-update", "a write replaces what its worker has read", lostUpdate},
		{"linearizable", "the operations on a row are as if one followed the other", linearizable},
		{"sums", "transfers neither make nor lose anything", sums},
		{"once", "the work of an idempotency key is done once, and everybody gets its result", once},
		{"whole", "a batch or a transfer is written whole or not at all", whole},
		{"exclusive", "a holder notices the loss of its lease before another gets it", exclusive},
		{"clean", "nothing is left: no connection, goroutine, lock or key", clean},
		{"progress", "work goes on soon after the last fault", progress},
	}
}

// Every runs all checks.
func Every(h *history.History) []Verdict {
	var all []Verdict
	for _, c := range All() {
		all = append(all, c.Run(h))
	}
	return all
}

// find notes that a promise is broken. The first time, it keeps how.
func (v *Verdict) find(row string, ops []string, format string, args ...any) {
	if v.Count++; v.Count == 1 {
		v.Row, v.Ops, v.Why = row, ops, fmt.Sprintf(format, args...)
	}
}

func undecided(why string) Verdict { return Verdict{Result: NotDecided, Why: why} }

// byRow returns the journal's entries of each row in their order, and the rows in theirs.
func byRow(h *history.History) (entries map[string][]history.Entry, rows []string) {
	entries = map[string][]history.Entry{}
	for _, e := range h.Journal {
		if entries[e.Row] == nil {
			rows = append(rows, e.Row)
		}
		entries[e.Row] = append(entries[e.Row], e)
	}
	for _, of := range entries {
		slices.SortFunc(of, func(a, b history.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	slices.Sort(rows)
	return entries, rows
}

// byMark returns the operations that leave a mark.
func byMark(h *history.History) map[string][]*history.Op {
	ops := map[string][]*history.Op{}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Mark != "" {
			ops[o.Mark] = append(ops[o.Mark], o)
		}
	}
	return ops
}

// start is the mark of the rows that a run begins with.
const start = "start"
