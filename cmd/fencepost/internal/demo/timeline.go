package demo

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

// Event is one thing that happened in a play.
type Event struct {
	At     time.Duration // since the play began
	Worker string        // the worker that did it, or to which it was done: A or B
	Text   string
	Tone   Tone
	Lease  string      // who has the lease from now on; "" if that does not change, "-" for nobody
	Fence  token.Token // the fence's token, if the fence was read and exists
	Row    *Row        // the row, if it was read
}

const nobody = "-"

// Tone is what an event means for the story.
type Tone int

// The tones.
const (
	Plain   Tone = iota
	Stopped      // the worker does not run until it is resumed
	Resumed
	Damage // a stale write was accepted
	Rescue // a stale write was refused
)

// The widths of the columns; with the gaps they make a line of less than 90.
const (
	timeWidth   = 6
	workerWidth = 21
	stateWidth  = 5 // lease and fence
	rowWidth    = 20
)

// Timeline prints the events of plays as a table, line by line as they happen. The table has a column for each worker,
// and one for each thing that the servers remember, which is filled in when it changes. The zero value is not usable.
// It is not safe for concurrent use.
type Timeline struct {
	out   io.Writer
	color bool
	err   error

	kind    Kind
	stopped string // the worker that is stopped
	fence   token.Token
	row     Row
}

// NewTimeline returns a timeline that prints to out, with colours if asked.
func NewTimeline(out io.Writer, color bool) *Timeline { return &Timeline{out: out, color: color} }

// Err returns the first write error.
func (t *Timeline) Err() error { return t.err }

// Watch prints one event. Before a play's first event it prints the play's heading. It fits Options.Watch.
func (t *Timeline) Watch(kind Kind, e Event) {
	if kind != t.kind {
		t.kind, t.stopped, t.fence, t.row = kind, "", 0, Row{}
		t.heading(kind)
	}
	a, b := "", ""
	if t.stopped == nameA {
		a = ":"
	}
	if e.Worker == nameA {
		a = e.Text
	} else {
		b = e.Text
	}
	switch e.Tone {
	case Stopped:
		t.stopped = e.Worker
	case Resumed:
		t.stopped = ""
	case Plain, Damage, Rescue:
	}
	tones := [columns]Tone{1: e.Tone, 2: e.Tone, 5: e.Tone}
	t.cells(tones, fmt.Sprintf("%4.2f s", e.At.Seconds()), a, b, e.Lease, t.fenceCell(e), t.rowCell(e))
}

func (t *Timeline) fenceCell(e Event) string {
	if e.Fence == 0 || e.Fence == t.fence {
		return ""
	}
	t.fence = e.Fence
	return e.Fence.String()
}

// rowCell shows the row if it changed, and always after a late write, which decides the play.
func (t *Timeline) rowCell(e Event) string {
	if e.Row == nil || (*e.Row == t.row && e.Tone != Rescue) {
		return ""
	}
	before := t.row
	t.row = *e.Row
	text := e.Row.String()
	if e.Row.Token < before.Token {
		text += fmt.Sprintf(" (it was %d)", before.Token)
	}
	return text
}

func (t *Timeline) heading(kind Kind) {
	explained := `Workers hold leases with claimed tokens, and write by a plain UPDATE:
the token is recorded in the row, and compared with nothing.`
	if kind == Fenced {
		explained = `The same workers write by an UPDATE behind fence.Enter, in one transaction:
PostgreSQL compares the token with the fence.`
	}
	t.printf("\n%s\n%s\n\n", t.paint(bold, strings.ToUpper(string(kind))), explained)
	t.cells([columns]Tone{}, "", "", "", "Redis", "PostgreSQL")
	t.cells([columns]Tone{}, "time", "worker A", "worker B", "lease", "fence", "row")
}

// columns is the number of columns of a line.
const columns = 6

// cells prints one row of the table, on as many lines as its longest cell needs.
func (t *Timeline) cells(tones [columns]Tone, cells ...string) {
	widths := [columns]int{timeWidth, workerWidth, workerWidth, stateWidth, stateWidth, rowWidth}
	var wrapped [columns][]string
	height := 1
	for i, text := range cells {
		wrapped[i] = wrap(text, widths[i])
		height = max(height, len(wrapped[i]))
	}
	for line := range height {
		var b strings.Builder
		blank := 0 // columns' worth of space not yet written: lines have none at their end
		for i := range wrapped {
			text := ""
			if line < len(wrapped[i]) {
				text = wrapped[i][line]
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", blank))
				b.WriteString(t.paint(colorOf(tones[i]), text))
				blank = 0
			}
			blank += max(0, widths[i]-len(text)) + 2
		}
		t.printf("%s\n", b.String())
	}
}

// End prints how plays ended.
func (t *Timeline) End(r *Result) {
	t.printf("\n")
	for _, end := range []struct {
		kind Kind
		*End
	}{{Unfenced, r.Unfenced}, {Fenced, r.Fenced}} {
		if end.End == nil {
			continue
		}
		t.printf("%-9s row = %v\n", string(end.kind)+":", end.Row)
		if end.StaleWrite == Refused {
			t.printf("%10s%s\n", "", t.paint(green, fmt.Sprintf(
				"PostgreSQL refused A's late write: token %d is stale, the fence is at %d.", end.StaleToken, end.CurrentToken)))
		} else {
			t.printf("%10s%s\n", "", t.paint(red, "A's late write was accepted: B's result is gone, and nobody was told."))
		}
	}
}

func (t *Timeline) printf(format string, args ...any) {
	_, err := fmt.Fprintf(t.out, format, args...)
	t.err = cmp.Or(t.err, err)
}

// The colours, as terminals know them.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func colorOf(tone Tone) string {
	return map[Tone]string{Stopped: yellow, Resumed: yellow, Damage: red, Rescue: green}[tone]
}

func (t *Timeline) paint(color, text string) string {
	if !t.color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// wrap breaks a text into lines of at most width, at spaces if possible.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
