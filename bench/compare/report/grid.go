package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// tone is what a text in a grid stands for. No text depends on it: the words say the same.
type tone int

const (
	plain tone = iota
	strong
	faint
	good
	bad
)

// The escape sequences of the tones.
func (t tone) start() string {
	return [...]string{plain: "", strong: "\x1b[1m", faint: "\x1b[2m", good: "\x1b[32m", bad: "\x1b[1;31m"}[t]
}

const toneEnd = "\x1b[0m"

// field is one place of a grid. It may have several lines.
type field struct {
	Text string
	Tone tone
}

// grid is a table on a terminal. The first column is aligned to the left, and so is the last where it holds
// prose; numbers are aligned to the right.
type grid struct {
	heads []string
	rows  [][]field
	prose bool // the last column is text
	tight bool // one space between columns, not two
}

func (g *grid) add(fields ...field) { g.rows = append(g.rows, fields) }

// band adds a line that heads the rows below it, across all columns.
func (g *grid) band(text string) { g.rows = append(g.rows, []field{{text, strong}}) }

// indent precedes every line of a table.
const indent = "  "

// write prints the grid, with colours if asked.
func (g *grid) write(w io.Writer, color bool) error {
	head := make([]field, len(g.heads))
	for i, h := range g.heads {
		head[i] = field{h, faint}
	}
	rows := append([][]field{head}, g.rows...)
	widths := make([]int, len(g.heads))
	for _, row := range rows {
		if len(row) < len(g.heads) {
			continue
		}
		for i, f := range row {
			for line := range strings.Lines(f.Text) {
				widths[i] = max(widths[i], utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	for _, row := range rows {
		if len(row) < len(g.heads) {
			if _, err := fmt.Fprintln(w, indent+pad(row[0].Text, 0, true, row[0].Tone, color)); err != nil {
				return err
			}
			continue
		}
		if err := g.writeRow(w, row, widths, color); err != nil {
			return err
		}
	}
	return nil
}

func (g *grid) writeRow(w io.Writer, row []field, widths []int, color bool) error {
	gap := "  "
	if g.tight {
		gap = " "
	}
	lines := make([][]string, len(row))
	height := 1
	for i, f := range row {
		lines[i] = strings.Split(f.Text, "\n")
		height = max(height, len(lines[i]))
	}
	for at := range height {
		var b strings.Builder
		for i, f := range row {
			text := ""
			if at < len(lines[i]) {
				text = lines[i][at]
			}
			left := i == 0 || g.prose && i == len(row)-1
			if i > 0 {
				b.WriteString(gap)
			}
			b.WriteString(pad(text, widths[i], left, f.Tone, color))
		}
		if _, err := fmt.Fprintln(w, indent+strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

func pad(text string, width int, left bool, t tone, color bool) string {
	space := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if color && text != "" && t.start() != "" {
		text = t.start() + text + toneEnd
	}
	if left {
		return text + space
	}
	return space + text
}

// wrap breaks words into lines of at most a width, or of one word where that is longer.
func wrap(words []string, width int) string {
	var b strings.Builder
	used := 0
	for i, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > width:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
