package board

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// View says how a page is shown.
type View struct {
	Order  string
	Rows   int  // how many leases, at most; 0: all
	Colour bool // with the colours of terminals
}

// colours of a terminal.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
)

// Lines returns a page as lines for people, or why there is none. problem is the text of the shot's problem.
func Lines(s Shot, problem string, v View) []string {
	var lines []string
	if problem != "" {
		since := ""
		if s.Page != nil {
			since = fmt.Sprintf(" What follows was seen at %s.", clock(s.Page.At))
		}
		lines = append(lines, v.paint(red, fmt.Sprintf("No answer since %s: %s%s", clock(s.Since), problem, since)), "")
	}
	if s.Page == nil {
		return lines
	}
	lines = append(lines, totalLines(s.Page, v)...)
	return append(lines, rowLines(s.Page, v)...)
}

// totalLines are the sums.
func totalLines(p *Page, v View) []string {
	t := p.Totals
	lines := []string{
		fmt.Sprintf(
			"leases     %d held, %d reserved, %s; %d wait for %d",
			t.Held,
			t.Reserved,
			v.paintIf(t.Overtaken > 0, red, fmt.Sprintf("%d overtaken", t.Overtaken)),
			t.Waiting,
			t.WaitedFor,
		),
		fmt.Sprintf("hand-offs  %d seen, %.1f a minute; %s", t.HandOffs, t.HandOffsPerMinute, turnText(t)),
		fmt.Sprintf(
			"claims     %d, %.1f a minute, and about %d fences, in all namespaces",
			t.Claims,
			t.ClaimsPerMinute,
			t.Fences,
		),
		"workers    " + v.workersText(p.Workers),
	}
	if p.First() {
		lines[1] = v.paint(faint, "hand-offs  are seen from the second look on")
		lines[2] = fmt.Sprintf("claims     are counted from the second look on; about %d fences, in all namespaces", t.Fences)
	}
	if t.Other > 0 {
		lines[0] += v.paint(yellow, fmt.Sprintf("; %d with a bad key, or without a majority", t.Other))
	}
	return append(lines, "")
}

func turnText(t Totals) string {
	if t.TurnMS == 0 {
		return "claim to claim: none seen"
	}
	return fmt.Sprintf("claim to claim: median %s, longest %s", Short(t.TurnMS), Short(t.LongestTurnMS))
}

func (v View) workersText(w *Workers) string {
	switch {
	case w == nil:
		return v.paint(faint, "not asked (--workers): only they know leases lost, writes refused, hand-off times")
	case w.Answered == 0:
		return v.paint(yellow, fmt.Sprintf("none of %d answered", w.Asked))
	}
	text := fmt.Sprintf("%d of %d answered: %d held, %s, %s, %d held off (+%d); ", w.Answered, w.Asked, w.Held,
		v.paintIf(w.LostNew > 0, red, fmt.Sprintf("%d lost (+%d)", w.Lost, w.LostNew)),
		v.paintIf(w.RefusedNew > 0, red, fmt.Sprintf("%d refused (+%d)", w.Refused, w.RefusedNew)), w.HeldOff, w.HeldOffNew)
	if w.HandOffs == 0 {
		return text + "no hand-off timed"
	}
	return text + fmt.Sprintf("hand-off: median %s, 99 %% within %s", Fine(w.HandOffMS), Fine(w.HandOffP99MS))
}

// rowLines are the leases as a table.
func rowLines(p *Page, v View) []string {
	if len(p.Leases) == 0 {
		return []string{"nobody holds a lease in the namespace " + Shown(p.Namespace)}
	}
	rows := p.Sorted(v.Order)
	left := 0
	if v.Rows > 0 && len(rows) > v.Rows {
		rows, left = rows[:v.Rows], len(rows)-v.Rows
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "RESOURCE\tHOLDER\tTOKEN\tLEFT\tHELD FOR\tWAITING\tCHANGES\tLAST TURN\t") // into memory
	for _, r := range rows {
		_, _ = fmt.Fprintf(
			table,
			"%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n",
			Shown(r.Resource),
			Shown(r.Holder),
			number(int64(r.Token)),
			Short(r.LeftMS),
			Short(r.HeldMS),
			r.Waiting,
			r.HandOffs,
			Short(r.TurnMS),
			r.Says(),
		)
	}
	_ = table.Flush() // into memory
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
		switch {
		case i == 0:
			lines[i] = v.paint(bold, lines[i])
		case rows[i-1].Overtaken:
			lines[i] = v.paint(red, lines[i])
		case rows[i-1].Says() != "":
			lines[i] = v.paint(yellow, lines[i])
		}
	}
	switch {
	case left > 0:
		lines = append(lines, fmt.Sprintf("… and %d others", left))
	case p.More:
		lines = append(lines, "… there are more: raise --limit")
	}
	return lines
}

func (v View) paint(colour, text string) string {
	if !v.Colour {
		return text
	}
	return colour + text + plain
}

func (v View) paintIf(when bool, colour, text string) string {
	if !when {
		return text
	}
	return v.paint(colour, text)
}

// Shown is a text from somebody else's hand, on one line, without control characters and in its own direction.
func Shown(text string) string {
	if text == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return '?'
		}
		return r
	}, text)
}

// Short is a time in milliseconds, for people.
func Short(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms == 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// Fine is a short time, for people.
func Fine(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(100 * time.Microsecond).String()
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// clock is the time of day.
func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }
