package check

import (
	"strings"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// tokens: the tokens of a row's entries never fall. A row that is removed and made again counts as the same row.
func tokens(h *history.History) (v Verdict) {
	if !h.Fenced {
		return undecided("there are no tokens")
	}
	entries, rows := byRow(h)
	for _, row := range rows {
		var before history.Entry
		for _, e := range entries[row] {
			if e.Action == "DELETE" {
				continue // it stamps nothing
			}
			if e.Token < before.Token {
				v.find(row, []string{before.Mark, e.Mark}, "token %d was written after token %d", e.Token, before.Token)
			}
			before = e
		}
	}
	return v
}

// oneHolder: all entries with a token of a resource are of one grant.
func oneHolder(h *history.History) (v Verdict) {
	if !h.Fenced {
		return undecided("there are no tokens")
	}
	ops := byMark(h)
	type key struct {
		resource string
		token    uint64
	}
	first := map[key]*history.Op{}
	for _, e := range h.Journal {
		of := ops[e.Mark]
		if len(of) != 1 || of[0].Lease == "" || of[0].Token != e.Token || !isUnder(e.Row, of[0].Resource) {
			// Of an operation whose worker was killed before it knew its token, or of one whose lease was lifted meanwhile. Of
			// several leases, the operation names one.
			continue
		}
		o := of[0]
		k := key{o.Resource, e.Token}
		if before := first[k]; before == nil {
			first[k] = o
		} else if before.Lease != o.Lease {
			v.find(e.Row, []string{before.ID, o.ID}, "two grants wrote under token %d", e.Token)
		}
	}
	return v
}

// isUnder reports whether a row belongs to a resource.
func isUnder(row, resource string) bool {
	group, _, _ := strings.Cut(row, "/")
	_, of, _ := strings.Cut(resource, ":")
	return group == of
}

// acknowledged: a write that was acknowledged is in the journal once for each of its rows. One that was refused is not
// there, and one that is unknown is there once at the most.
func acknowledged(h *history.History) (v Verdict) {
	type place struct{ mark, row string }
	found := map[place]int{}
	for _, e := range h.Journal {
		if e.Mark != "" {
			found[place{e.Mark, e.Row}]++
		}
	}
	for mark, ops := range byMark(h) {
		if ops[0].Kind == history.Delete {
			continue // it leaves no mark
		}
		for _, row := range ops[0].Rows {
			n := found[place{mark, row}]
			delete(found, place{mark, row})
			written, possible := expected(ops)
			switch {
			case n == 0 && written != "":
				v.find(row, []string{written}, "%s was acknowledged, and the journal does not have it", mark)
			case n > 0 && !possible:
				v.find(row, []string{ops[0].ID}, "%s was refused as %q, and the journal has it", mark, ops[0].Error)
			case n > 1 && ops[0].Kind != history.Once: // that is a promise of its own
				v.find(row, []string{ops[0].ID}, "%s was written %d times", mark, n)
			}
		}
	}
	for p := range found {
		if p.mark != start {
			v.find(p.row, nil, "the journal has %q, which nobody recorded", p.mark)
		}
	}
	return v
}

// expected returns an operation that says that their mark was written, if there is one, and whether it may have been.
func expected(ops []*history.Op) (written string, possible bool) {
	for _, o := range ops {
		switch {
		case o.Kind == history.Insert && o.Outcome == history.OK && o.Found: // there was a row already
		case o.Outcome == history.OK:
			return o.ID, true
		case o.Uncertain():
			possible = true
		}
	}
	return "", possible
}

// lostUpdate: what a change replaced is what its worker had read.
func lostUpdate(h *history.History) (v Verdict) {
	ops := byMark(h)
	decided := false
	for _, e := range h.Journal {
		of := ops[e.Mark]
		if e.Action != "UPDATE" || len(of) != 1 || of[0].Kind != history.Change && of[0].Kind != history.Modify {
			continue
		}
		if of[0].Read == "" {
			continue // its worker was killed
		}
		decided = true
		if of[0].Read != e.Before {
			v.find(e.Row, []string{e.Before, e.Mark}, "%s had read %s, and replaced %s", e.Mark, of[0].Read, e.Before)
		}
	}
	if !decided {
		return undecided("nothing was read and then written")
	}
	return v
}

// sums: the rows of transfers add up to the same at the end, and whenever somebody added them up.
func sums(h *history.History) (v Verdict) {
	if h.Ending.Expected == 0 {
		return undecided("there are no transfers")
	}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == history.Sum && o.Outcome == history.OK && o.ReadN != h.Ending.Expected {
			v.find("", []string{o.ID}, "%s added up to %d, and not to %d", o.ID, o.ReadN, h.Ending.Expected)
		}
	}
	var all int64
	for _, n := range h.Ending.Numbers {
		all += n
	}
	if all != h.Ending.Expected {
		v.find("", nil, "at the end the rows add up to %d, and not to %d", all, h.Ending.Expected)
	}
	return v
}

// once: the journal has each idempotency key once at the most, and everybody who got a result got that one's.
func once(h *history.History) (v Verdict) {
	effects := map[string][]history.Entry{}
	for _, e := range h.Journal {
		effects[e.Mark] = append(effects[e.Mark], e)
	}
	decided := false
	for mark, ops := range byMark(h) {
		if ops[0].Kind != history.Once {
			continue
		}
		decided = true
		of := effects[mark]
		if len(of) > 1 {
			v.find(of[0].Row, ids(ops), "the work of %s was done %d times", mark, len(of))
			continue
		}
		for _, o := range ops {
			if len(of) == 1 && o.Outcome == history.OK && o.WroteN != of[0].N {
				v.find(of[0].Row, []string{o.ID}, "%s returned %d, and the work made %d", o.ID, o.WroteN, of[0].N)
			}
		}
	}
	if !decided {
		return undecided("no work had an idempotency key")
	}
	return v
}

func ids(ops []*history.Op) (all []string) {
	for _, o := range ops {
		all = append(all, o.ID)
	}
	return all
}

// whole: what writes several rows has written all of them or none.
func whole(h *history.History) (v Verdict) {
	rows := map[string]int{}
	for _, e := range h.Journal {
		rows[e.Mark]++
	}
	decided := false
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Kind != history.Batch && o.Kind != history.Transfer {
			continue
		}
		decided = true
		if n := rows[o.Mark]; n > 0 && n < len(o.Rows) {
			v.find(o.Rows[0], []string{o.ID}, "%s wrote %d of %d rows", o.ID, n, len(o.Rows))
		}
	}
	if !decided {
		return undecided("nothing wrote several rows")
	}
	return v
}
