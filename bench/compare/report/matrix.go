package report

// matrix is one workload: a row for each mode, a column for each fault.
type matrix struct {
	Workload string
	Columns  []column
	Rows     []matrixRow
}

// column is a fault or, if some mode ran it both with and without idempotency keys, one half of it.
type column struct {
	Fault string
	Split bool // whether the other half has a column of its own
	Keyed bool // says which half, where Split
}

// Label is the heading.
func (c column) Label() string {
	switch {
	case !c.Split:
		return c.Fault
	case c.Keyed:
		return c.Fault + ", keyed"
	default:
		return c.Fault + ", no key"
	}
}

type matrixRow struct {
	Mode    string
	Entries []entry // one for each column
}

// entry is a place in the matrix: a cell that was run, one that was left out, or neither: not asked for.
type entry struct {
	Column column
	Cell   *Cell
	Left   *LeftOut
}

// matrices sorts the cells of a report into tables.
func matrices(r *Report) []matrix {
	var all []matrix
	for _, w := range Workloads() {
		cells := only(r.Cells, func(c *Cell) bool { return c.Workload == w })
		if len(cells) == 0 {
			continue
		}
		left := only(r.LeftOut, func(l *LeftOut) bool { return l.Workload == w })
		all = append(all, newMatrix(w, cells, left))
	}
	return all
}

// only returns pointers to the elements that fit.
func only[T any](list []T, fits func(*T) bool) []*T {
	var found []*T
	for i := range list {
		if fits(&list[i]) {
			found = append(found, &list[i])
		}
	}
	return found
}

func newMatrix(workload string, cells []*Cell, left []*LeftOut) matrix {
	m := matrix{Workload: workload, Columns: columns(cells)}
	for _, mode := range Modes() {
		row := matrixRow{Mode: mode}
		var some bool
		for _, c := range m.Columns {
			e := place(mode, c, cells, left)
			some = some || e.Cell != nil || e.Left != nil
			row.Entries = append(row.Entries, e)
		}
		if some {
			m.Rows = append(m.Rows, row)
		}
	}
	return m
}

func columns(cells []*Cell) []column {
	var all []column
	for _, fault := range Faults() {
		keyed := make(map[string]map[bool]bool) // by mode: ran it with a key, without
		for _, c := range cells {
			if c.Fault == fault {
				if keyed[c.Mode] == nil {
					keyed[c.Mode] = make(map[bool]bool)
				}
				keyed[c.Mode][c.Keyed] = true
			}
		}
		var split bool
		for _, both := range keyed {
			split = split || len(both) > 1
		}
		switch {
		case split:
			all = append(all, column{Fault: fault, Split: true}, column{Fault: fault, Split: true, Keyed: true})
		case len(keyed) > 0:
			all = append(all, column{Fault: fault})
		}
	}
	return all
}

func place(mode string, c column, cells []*Cell, left []*LeftOut) entry {
	e := entry{Column: c}
	for _, cell := range cells {
		if cell.Mode == mode && cell.Fault == c.Fault && (!c.Split || cell.Keyed == c.Keyed) {
			e.Cell = cell
			return e
		}
	}
	for _, l := range left {
		if l.Mode == mode && l.Fault == c.Fault && (!c.Split || l.Keyed == c.Keyed) {
			e.Left = l
		}
	}
	return e
}
