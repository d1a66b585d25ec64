package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// exclusive: nobody believes in a lease after a later grant of it has returned. Leases alone promise that only as long
// as Redis forgets nothing and the clocks run at their rates.
func exclusive(h *history.History) (v Verdict) {
	if !h.Kept {
		return undecided("a fault made Redis forget leases, or moved a clock")
	}
	grants := map[string][]*history.Op{}
	decided := false
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == history.Grant && o.Outcome == history.OK && o.Token > 0 {
			grants[o.Resource] = append(grants[o.Resource], o)
		}
	}
	for _, of := range grants {
		// From the highest token down: the earliest return of any of the later grants.
		slices.SortFunc(of, func(a, b *history.Op) int { return cmp.Compare(b.Token, a.Token) })
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != history.Belief || !o.Found {
			continue
		}
		decided = true
		for _, g := range grants[o.Resource] {
			if g.Token <= o.Token {
				break
			}
			if g.Returned < o.Invoked {
				v.find(o.Resource, []string{g.ID, o.ID}, "%s believed in token %d %v after token %d had been granted to %s",
					o.Process, o.Token, o.Invoked-g.Returned, g.Token, g.Process)
			}
		}
	}
	v2 := doubled(grants)
	if v.Count == 0 {
		v = v2
	}
	if !decided && v.Count == 0 {
		return undecided("nobody looked at a lease")
	}
	return v
}

// doubled finds two grants with one token.
func doubled(grants map[string][]*history.Op) (v Verdict) {
	for resource, of := range grants {
		for i := 1; i < len(of); i++ {
			if of[i].Token == of[i-1].Token {
				v.find(resource, []string{of[i].ID, of[i-1].ID}, "token %d was granted twice", of[i].Token)
			}
		}
	}
	return v
}

// clean: what the workers and the servers had left at the end.
func clean(h *history.History) (v Verdict) {
	if h.Ending.Stopped == 0 {
		return undecided("the run did not come to its end")
	}
	for _, left := range h.Ending.Left {
		v.find("", nil, "%s", left)
	}
	return v
}

// progress: after the last fault, an operation succeeds on each resource within a time. It must have been invoked after
// the fault: an earlier one may have been answered before.
func progress(h *history.History) (v Verdict) {
	var last time.Duration
	for _, f := range h.Faults {
		last = max(last, f.Healed)
	}
	if h.Ending.Within == 0 || h.Ending.Stopped < last+h.Ending.Within {
		return undecided("the run ended too soon after the last fault")
	}
	// The first success of each resource after the fault, for those that anybody asked for.
	served, asked := map[string]time.Duration{}, map[string]string{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Invoked < last || o.Kind == history.Belief || o.Kind == history.Release {
			continue
		}
		if asked[o.Resource] == "" {
			asked[o.Resource] = o.ID
		}
		if at, ok := served[o.Resource]; o.Outcome == history.OK && (!ok || o.Returned < at) {
			served[o.Resource] = o.Returned
		}
	}
	if len(asked) == 0 {
		v.find("", nil, "nobody asked for anything after the last fault")
	}
	for resource, op := range asked {
		if at, ok := served[resource]; !ok || at > last+h.Ending.Within {
			v.find(resource, []string{op}, "no operation succeeded within %v of the last fault", h.Ending.Within)
		}
	}
	return v
}
