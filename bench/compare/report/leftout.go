package report

import (
	"fmt"
	"slices"
	"strings"
)

// reason is why some cells were left out.
type reason struct {
	Modes, Workloads, Faults []string // no faults: all
	Text                     string
}

// reasons gathers the cells that were left out for the same reason, in the order in which they are first met.
func reasons(r *Report) []reason {
	var all []reason
	for i := range r.LeftOut {
		l := &r.LeftOut[i]
		one := reason{
			Modes:     []string{l.Mode},
			Workloads: []string{l.Workload},
			Faults:    []string{l.faultLabel()},
			Text:      l.Reason,
		}
		if ranNowhere(r, l) {
			one.Faults = nil
		}
		all = append(all, one)
	}
	all = merge(all, func(o *reason) *[]string { return &o.Faults })
	all = merge(all, func(o *reason) *[]string { return &o.Workloads })
	return merge(all, func(o *reason) *[]string { return &o.Modes })
}

func (l *LeftOut) faultLabel() string {
	switch {
	case l.Keyed:
		return l.Fault + ", keyed"
	case l.Fault == FaultCommitReplyLost:
		return l.Fault + ", no key"
	default:
		return l.Fault
	}
}

// ranNowhere reports whether the mode has no cell with the workload, and always for this reason, so that the
// faults need no naming.
func ranNowhere(r *Report, of *LeftOut) bool {
	others := slices.ContainsFunc(r.LeftOut, func(l LeftOut) bool {
		return l.Mode == of.Mode && l.Workload == of.Workload && l.Reason != of.Reason
	})
	return !others &&
		!slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Mode == of.Mode && c.Workload == of.Workload })
}

// merge makes one of those that differ in nothing but the part.
func merge(all []reason, part func(*reason) *[]string) []reason {
	var merged []reason
	for _, o := range all {
		at := slices.IndexFunc(merged, func(m reason) bool { return sameBut(m, o, part) })
		if at < 0 {
			merged = append(merged, o)
			continue
		}
		into := part(&merged[at])
		for _, name := range *part(&o) {
			if !slices.Contains(*into, name) {
				*into = append(*into, name)
			}
		}
	}
	return merged
}

func sameBut(a, b reason, part func(*reason) *[]string) bool {
	*part(&a), *part(&b) = nil, nil
	return a.Text == b.Text && slices.Equal(a.Modes, b.Modes) && slices.Equal(a.Workloads, b.Workloads) &&
		slices.Equal(a.Faults, b.Faults)
}

// String is the reason as a sentence.
func (o reason) String() string {
	where := strings.Join(o.Workloads, ", ")
	if o.Faults != nil {
		where += ", " + strings.Join(o.Faults, ", ")
	}
	return fmt.Sprintf("%s (%s): %s", strings.Join(o.Modes, ", "), where, o.Text)
}
