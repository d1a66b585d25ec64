package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// narrow is the width of a column of the overview: nine modes by ten faults then fit a line of 100.
const narrow = 7

// wide is how long a line may be.
const wide = 100

// Text writes the report for a terminal of at least 100 columns, with colours if asked. What was lost comes
// last, because that is where people look when a command has ended.
func Text(w io.Writer, r *Report, color bool) error {
	t := &text{w: w, color: color}
	all := matrices(r)
	t.details(all)
	t.modes(r.Modes)
	t.figures(r.Figures)
	t.leftOut(r)
	t.settings(r)
	t.overviews(all)
	for _, sentence := range Summary(r) {
		t.line("%s", wrap(strings.Fields(sentence), wide))
	}
	return t.err
}

// text is a writer that keeps its first error.
type text struct {
	w     io.Writer
	color bool
	err   error
}

func (t *text) line(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format+"\n", args...)
	}
}

func (t *text) title(s string) {
	t.line("")
	if t.color {
		s = strong.start() + s + toneEnd
	}
	t.line("%s", s)
}

func (t *text) grid(g *grid) {
	if t.err == nil {
		t.err = g.write(t.w, t.color)
	}
}

// details has a line for each cell, and a band for each fault.
func (t *text) details(all []matrix) {
	if len(all) == 0 {
		return
	}
	t.title("Every cell")
	g := grid{
		heads: []string{
			"mode",
			"",
			"accepted",
			"refused",
			"of these\nby\nPostgreSQL",
			"lost",
			"duplicates",
			"unknown",
			"unavail-\nable",
		},
	}
	for _, m := range all {
		for i, c := range m.Columns {
			g.band(m.Workload + ", " + c.Label())
			for _, row := range m.Rows {
				if cell := row.Entries[i].Cell; cell != nil {
					g.add(
						field{Text: "  " + row.Mode},
						verdictField(cell),
						count(cell.Accepted),
						count(cell.Refused),
						count(
							cell.RefusedByPostgres,
						),
						harm(cell.LostUpdates),
						harm(cell.Duplicates),
						count(cell.Unknown),
						field{Text: seconds(cell.UnavailableS)},
					)
				}
			}
		}
	}
	t.grid(&g)
}

func count(n int64) field { return field{Text: strconv.FormatInt(n, 10)} }

func harm(n int64) field {
	f := count(n)
	if n > 0 {
		f.Tone = bad
	}
	return f
}

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// verdictField is one word, for those who look down the column.
func verdictField(c *Cell) field {
	switch {
	case c.LostUpdates > 0:
		return field{"LOSS", bad}
	case c.Duplicates > 0:
		return field{"TWICE", bad}
	default:
		return field{"ok", good}
	}
}

// overviews have the harm alone: a table for each workload with many faults, one for all others.
func (t *text) overviews(all []matrix) {
	if len(all) == 0 {
		return
	}
	t.title("What went wrong (LOST: row changes lost; TWICE: done more than once; -: left out)")
	for len(all) > 0 {
		width, n := len(all[0].Columns), 1
		for n < len(all) && width+len(all[n].Columns) <= len(Faults())+1 {
			width += len(all[n].Columns)
			n++
		}
		t.overview(all[:n])
		all = all[n:]
	}
}

func (t *text) overview(side []matrix) {
	alone := len(side) == 1
	g := grid{heads: []string{"mode"}, tight: true}
	if alone {
		g.heads[0] = side[0].Workload
	}
	rows := make(map[string][]field)
	for _, m := range side {
		before := len(g.heads)
		for _, c := range m.Columns {
			head := c.Label()
			if !alone {
				head = m.Workload + ": " + head
			}
			g.heads = append(g.heads, wrapName(head))
		}
		for _, row := range m.Rows {
			if rows[row.Mode] == nil {
				rows[row.Mode] = []field{{Text: row.Mode}}
			}
			// A mode that an earlier workload does not have.
			missing := make([]field, before-len(rows[row.Mode]))
			rows[row.Mode] = append(rows[row.Mode], missing...)
			for _, e := range row.Entries {
				rows[row.Mode] = append(rows[row.Mode], e.field())
			}
		}
	}
	for _, mode := range Modes() {
		if row := rows[mode]; row != nil {
			g.add(append(row, make([]field, len(g.heads)-len(row))...)...)
		}
	}
	t.grid(&g)
	t.line("")
}

// wrapName breaks a name after its hyphens.
func wrapName(name string) string {
	var lines []string
	for part := range strings.FieldsSeq(strings.ReplaceAll(name, "-", "- ")) {
		if last := len(lines) - 1; last >= 0 && strings.HasSuffix(lines[last], "-") && len(lines[last])+len(part) <= narrow {
			lines[last] += part
			continue
		}
		lines = append(lines, part)
	}
	return strings.Join(lines, "\n")
}

func (e entry) field() field {
	switch {
	case e.Cell == nil && e.Left == nil:
		return field{}
	case e.Cell == nil:
		return field{"-", faint}
	}
	var words []string
	if n := e.Cell.LostUpdates; n > 0 {
		words = append(words, "LOST", strconv.FormatInt(n, 10))
	}
	if n := e.Cell.Duplicates; n > 0 {
		words = append(words, "TWICE", strconv.FormatInt(n, 10))
	}
	if words == nil {
		return field{"ok", good}
	}
	return field{wrap(words, narrow), bad}
}

func (t *text) modes(modes []ModeFigures) {
	if len(modes) == 0 {
		return
	}
	t.title("What each mode costs, nothing going wrong")
	g := grid{
		heads: []string{
			"mode",
			"operations/s",
			"p50",
			"p99",
			"trips to Redis\nper operation",
			"to PostgreSQL\nper operation",
			"connections held\nby a waiter",
		},
	}
	for _, m := range modes {
		g.add(
			field{Text: m.Mode},
			field{Text: decimals(m.OpsPerS, 0)},
			field{Text: milliseconds(m.P50MS)},
			field{Text: milliseconds(m.P99MS)},
			field{
				Text: decimals(m.RoundTripsRedis, 1),
			},
			field{Text: decimals(m.RoundTripsPostgres, 1)},
			field{Text: decimals(m.ConnectionsHeld, 1)},
		)
	}
	t.grid(&g)
}

func decimals(x float64, places int) string { return strconv.FormatFloat(x, 'f', places, 64) }

// milliseconds has about three digits.
func milliseconds(ms float64) string {
	places := 2
	switch {
	case ms >= 100:
		places = 0
	case ms >= 10:
		places = 1
	}
	return decimals(ms, places) + " ms"
}

func (t *text) figures(figures []Figure) {
	if len(figures) == 0 {
		return
	}
	t.title("Side by side")
	g := grid{heads: []string{"figure", "value", "ratio", "target", "met", "against"}, prose: true}
	for i := range figures {
		f := &figures[i]
		met := field{f.Verdict(), good}
		switch {
		case f.Met == nil:
			met.Tone = plain
		case !*f.Met:
			met.Tone = bad
		}
		g.add(field{Text: wrap(strings.Fields(f.Name), 34)}, field{Text: f.ValueText()}, field{Text: decimals(f.Ratio, 3)},
			field{Text: f.TargetText()}, met, field{Text: wrap(strings.Fields(f.Against), 24)})
	}
	t.grid(&g)
}

// Verdict says in a word whether the target was met.
func (f *Figure) Verdict() string {
	switch {
	case f.Met == nil:
		return "-"
	case *f.Met:
		return "yes"
	default:
		return "NO"
	}
}

// TargetText is the target for people, or "-" if there is none.
func (f *Figure) TargetText() string {
	if f.Target == nil {
		return "-"
	}
	return decimals(*f.Target, 2)
}

// ValueText is the value with its unit, for people.
func (f *Figure) ValueText() string {
	places := 0
	if f.Value < 100 && f.Value != float64(int64(f.Value)) {
		places = 2
	}
	return strings.TrimSpace(decimals(f.Value, places) + " " + f.Unit)
}

func (t *text) leftOut(r *Report) {
	all := reasons(r)
	if len(all) == 0 {
		return
	}
	t.title("Left out")
	for _, o := range all {
		text := wrap(strings.Fields(o.String()), wide-2*len(indent))
		t.line("%s%s", indent, strings.ReplaceAll(text, "\n", "\n"+indent+indent))
	}
}

func (t *text) settings(r *Report) {
	t.title("How it was run")
	for _, row := range SettingsRows(r) {
		t.line("%s%-20s %s", indent, row.Name, row.Meaning)
	}
}
