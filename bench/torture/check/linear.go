package check

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// patience bounds the search for one row.
const patience = 20 * time.Second

// linearizable: the operations on each row can be put in one order, each between its request and its answer, in which
// each sees what the one before it left. A batch counts as a write of each of its rows.
//
// The journal tells which of the uncertain writes took effect. A delete leaves no mark, so it may have or not.
func linearizable(h *history.History) (v Verdict) {
	written := map[string]bool{}
	for _, e := range h.Journal {
		written[e.Mark] = true
	}
	rows := map[string][]porcupine.Operation{}
	clients := map[string]int{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if !isOfRows(o) || !counts(o, written) {
			continue
		}
		if _, ok := clients[o.Process]; !ok {
			clients[o.Process] = len(clients)
		}
		returned := int64(o.Returned)
		if o.Outcome != history.OK {
			returned = math.MaxInt64
		}
		of := o.Rows[:1]
		if o.Kind == history.Batch {
			of = o.Rows
		}
		for _, row := range of {
			rows[row] = append(rows[row], porcupine.Operation{
				ClientId: clients[o.Process], Input: o, Call: int64(o.Invoked), Output: o, Return: returned,
			})
		}
	}
	names := make([]string, 0, len(rows))
	for row := range rows {
		names = append(names, row)
	}
	slices.Sort(names)
	var slow string
	for _, row := range names {
		switch porcupine.CheckOperationsTimeout(model(), rows[row], patience) {
		case porcupine.Illegal:
			v.find(row, shortest(rows[row]), "the operations on the row have no order")
		case porcupine.Unknown:
			slow = row
		case porcupine.Ok:
		}
	}
	if v.Count == 0 && (slow != "" || len(rows) == 0) {
		return undecided(cmp.Or(slow, "no row was read and written by itself"))
	}
	return v
}

func isOfRows(o *history.Op) bool {
	switch o.Kind {
	case history.Get, history.Put, history.Change, history.Modify, history.Insert, history.Upsert, history.Delete,
		history.Batch:
		return true
	case history.Transfer, history.Sum, history.Once, history.Grant, history.Belief, history.Release:
	}
	return false
}

// counts reports whether an operation may have had an effect that somebody can see, or has seen one itself.
func counts(o *history.Op, written map[string]bool) bool {
	switch {
	case o.Outcome == history.OK:
		return true
	case !o.Uncertain() || !o.Writes():
		return false
	}
	return o.Kind == history.Delete || written[o.Mark]
}

// absent is the state of a row that does not exist. The state of the others is their mark.
const absent = ""

func model() porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return unseen{} },
		Equal: func(a, b any) bool { return a == b },
		Step: func(state, input, _ any) (bool, any) {
			return step(state, input.(*history.Op))
		},
	}
}

// unseen is the state of a row before anybody has seen it: it is there with the mark start, or it is not there.
type unseen struct{}

func step(state any, o *history.Op) (bool, any) {
	was, known := state.(string)
	read := absent
	if o.Found {
		read = o.Read
	}
	sees := func() bool { return known && was == read || !known && (read == absent || read == start) }
	exists := func(want bool) bool { return !known || (was != absent) == want }
	switch o.Kind {
	case history.Get:
		return sees(), read
	case history.Put, history.Batch:
		return exists(true), o.Mark
	case history.Upsert:
		return true, o.Mark
	case history.Change, history.Modify:
		if o.Read == "" {
			return exists(true), o.Mark // the worker was killed, and what it had read is not known
		}
		return sees(), o.Mark
	case history.Insert:
		if o.Outcome == history.OK && o.Found {
			return exists(true), state
		}
		return exists(false), o.Mark
	case history.Delete:
		if o.Uncertain() {
			return true, absent
		}
		return exists(o.Found), absent
	default:
		return false, state
	}
}

// shown is how many operations of a row without an order a verdict names.
const shown = 4

// shortest finds the earliest answer after which a row's operations have no order. It returns the operation that was
// answered then, and those that were answered before it.
func shortest(ops []porcupine.Operation) []string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	end := sort.Search(len(ops)-1, func(i int) bool {
		return porcupine.CheckOperationsTimeout(model(), until(ops, i), patience) == porcupine.Illegal
	})
	var names []string
	for _, o := range ops[max(0, end-shown+1) : end+1] {
		names = append(names, o.Input.(*history.Op).ID)
	}
	return names
}

// until returns what was known of a row when the i-th answer came: the operations that had been answered, and writes
// that were under way.
func until(ops []porcupine.Operation, i int) []porcupine.Operation {
	known := slices.Clone(ops[:i+1])
	for _, o := range ops[i+1:] {
		op := *o.Input.(*history.Op)
		if o.Call < ops[i].Return && op.Writes() {
			op.Found, op.Read, op.Outcome = false, "", history.Unknown
			o.Input, o.Return = &op, math.MaxInt64
			known = append(known, o)
		}
	}
	return known
}
