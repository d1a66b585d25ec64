package cli

import (
	"context"
	"io"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// RunComparing is Run with another comparison in place of the real one.
func RunComparing(
	ctx context.Context,
	args []string,
	stdout, stderr io.Writer,
	comparing func(context.Context, *compare.Options) (*report.Report, error),
) int {
	var c commands
	c.Compare.run = comparing
	return run(ctx, &c, args, &streams{out: stdout, err: stderr})
}

// Bar has a run of so many steps shown to a terminal.
func Bar(out io.Writer, names ...string) {
	p := newProgress(out, true)
	for i, name := range names {
		p.step(i+1, len(names), name)
	}
	p.end()
}
