package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/check"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// The picture's measures, in pixels.
const (
	pictureWidth = 1000
	marginLeft   = 130
	lane         = 22
	barHeight    = 14
	headHeight   = 60
)

// around is how much of the history before the operations of a verdict is drawn, and after them.
const around = 300 * time.Millisecond

// mostBars is how many operations a picture has, the last ones: more would not be readable.
const mostBars = 60

// Timeline draws what led to a broken promise, as SVG: the operations on its row around those that show it, one lane
// for each worker's thread, and the faults. It returns nil for a verdict that names no operation.
func Timeline(h *history.History, v *check.Verdict) []byte {
	ops := concerned(h, v)
	if len(ops) == 0 {
		return nil
	}
	p := &picture{from: ops[0].Invoked, lanes: map[string]int{}, marked: v.Ops}
	for i := range ops {
		p.to = max(p.to, end(&ops[i]))
		if _, ok := p.lanes[thread(&ops[i])]; !ok {
			p.lanes[thread(&ops[i])] = len(p.lanes)
		}
	}
	height := headHeight + lane*(len(p.lanes)+1) + lane
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`,
		pictureWidth, height)
	p.add(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	p.add(`<text x="10" y="20" font-size="14">%s: %s</text>`, escape(v.Check), escape(v.Why))
	p.add(`<text x="10" y="38" fill="#555555">row %s; %v from left to right; the operations that show it are red</text>`,
		escape(v.Row), (p.to - p.from).Round(time.Millisecond))
	p.faults(h, height)
	for _, name := range p.names() {
		p.add(`<text x="10" y="%d">thread %s</text>`, p.y(name)+barHeight-3, escape(name))
	}
	for i := range ops {
		p.bar(&ops[i])
	}
	p.add(`</svg>`)
	return []byte(p.text.String())
}

// concerned returns the operations of a verdict, and those on the same row that were under way around them.
func concerned(h *history.History, v *check.Verdict) (ops []history.Op) {
	var from, to time.Duration
	for i := range h.Ops {
		if o := &h.Ops[i]; slices.Contains(v.Ops, o.ID) {
			if from == 0 || o.Invoked < from {
				from = o.Invoked
			}
			to = max(to, end(o))
		}
	}
	if from == 0 {
		return nil
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		named := slices.Contains(v.Ops, o.ID)
		near := end(o) >= from-around && o.Invoked <= to+around
		if named || near && o.Kind != history.Grant && slices.Contains(o.Rows, v.Row) {
			ops = append(ops, *o)
		}
	}
	slices.SortFunc(ops, func(a, b history.Op) int { return cmp.Compare(a.Invoked, b.Invoked) })
	return ops[max(0, len(ops)-mostBars):]
}

// end is when an operation returned; one that never did is drawn as short.
func end(o *history.Op) time.Duration { return max(o.Returned, o.Invoked+time.Millisecond) }

// thread is the name of an operation's thread: all of its ID but the last number.
func thread(o *history.Op) string {
	i := strings.LastIndex(o.ID, ".")
	return o.ID[:max(i, 0)]
}

type picture struct {
	text     strings.Builder
	from, to time.Duration
	lanes    map[string]int
	marked   []string
}

func (p *picture) add(format string, args ...any) {
	_, _ = fmt.Fprintf(&p.text, format+"\n", args...) // a builder returns no error
}

func (p *picture) names() []string {
	names := make([]string, len(p.lanes))
	for name, i := range p.lanes {
		names[i] = name
	}
	return names
}

func (p *picture) y(thread string) int { return headHeight + lane*(p.lanes[thread]+1) }

func (p *picture) x(at time.Duration) float64 {
	share := float64(at-p.from) / float64(max(p.to-p.from, 1))
	return marginLeft + min(max(share, 0), 1)*(pictureWidth-marginLeft-20)
}

// faults draws the faults as grey bands over all lanes.
func (p *picture) faults(h *history.History, height int) {
	for _, f := range h.Faults {
		if f.Healed < p.from || f.Began > p.to {
			continue
		}
		x, width := p.x(f.Began), max(p.x(f.Healed)-p.x(f.Began), 2)
		p.add(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#e8e8e8"/>`, x, headHeight, width, height-headHeight)
		p.add(`<text x="%.1f" y="%d" fill="#555555">%s %s</text>`, x+2, headHeight+barHeight,
			escape(f.Name), escape(f.Target))
	}
}

func (p *picture) bar(o *history.Op) {
	color := map[history.Outcome]string{history.OK: "#9ec5e8", history.Refused: "#d0d0d0"}[o.Outcome]
	color = cmp.Or(color, "#f2d38b") // unknown
	if slices.Contains(p.marked, o.ID) {
		color = "#e06c5c"
	}
	x := p.x(o.Invoked)
	p.add(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`,
		x, p.y(thread(o)), max(p.x(end(o))-x, 2), barHeight, color, escape(told(o)))
	if slices.Contains(p.marked, o.ID) {
		p.add(`<text x="%.1f" y="%d">%s</text>`, x+2, p.y(thread(o))+barHeight-3, escape(told(o)))
	}
}

// told says what an operation was.
func told(o *history.Op) string {
	text := fmt.Sprintf("%s %s: %s", o.ID, o.Kind, cmp.Or(string(o.Outcome), "never returned"))
	if o.Error != "" {
		text += " (" + o.Error + ")"
	}
	if o.Token > 0 {
		text += fmt.Sprintf(", token %d", o.Token)
	}
	if o.Read != "" {
		text += ", read " + o.Read
	}
	return text
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // as above
	return b.String()
}
