package cli

import (
	"fmt"
	"io"

	"github.com/schollz/progressbar/v3"
)

// progress tells people how far a run is: with a bar on a terminal, with a line for each step elsewhere. It is
// for one goroutine at a time. What cannot be written is of no consequence.
type progress struct {
	out      io.Writer
	terminal bool
	bar      *progressbar.ProgressBar
}

func newProgress(out io.Writer, terminal bool) *progress {
	return &progress{out: out, terminal: terminal}
}

// step says that so many steps of all are done, the latest being the one that is named.
func (p *progress) step(done, total int, name string) {
	if !p.terminal {
		_, _ = fmt.Fprintf(p.out, "%d of %d: %s\n", done, total, name)
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionClearOnFinish(), progressbar.OptionShowDescriptionAtLineEnd())
	}
	p.bar.ChangeMax(total)
	p.bar.Describe(name)
	_ = p.bar.Set(done)
}

// end leaves the terminal as it was.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
