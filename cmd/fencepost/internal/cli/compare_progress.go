package cli

import (
	"fmt"
	"io"

	"github.com/schollz/progressbar/v3"
)

// progress shows people how far a run is: with a bar on a terminal, and with one line per step elsewhere. It is not
// safe for concurrent use. It ignores write errors.
type progress struct {
	out      io.Writer
	terminal bool
	bar      *progressbar.ProgressBar
}

func newProgress(out io.Writer, terminal bool) *progress {
	return &progress{out: out, terminal: terminal}
}

// step shows how many of all steps are done. The step that is named is the latest.
func (p *progress) step(done, total int, name string) {
	if !p.terminal {
		_, _ = fmt.Fprintf(p.out, "%d of %d: %s\n", done, total, name)
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(
			total,
			progressbar.OptionSetWriter(
				p.out,
			),
			progressbar.OptionSetWidth(24),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionShowDescriptionAtLineEnd(),
		)
	}
	p.bar.ChangeMax(total)
	p.bar.Describe(name)
	_ = p.bar.Set(done)
}

// end leaves the terminal as it was before.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
