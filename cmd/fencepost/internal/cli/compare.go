package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
	"github.com/fencepost-pg/fencepost/internal/process"
)

// compareCommands are the comparison and the hidden command with which it starts its workers.
type compareCommands struct {
	Compare       compareCommand       `cmd:"" help:"Run the same work under each way of coordinating it, let things go wrong, and count what each loses and costs."`
	CompareWorker compareWorkerCommand `cmd:"" hidden:"" help:"Be a worker of compare, which starts it."`
}

type compareCommand struct {
	Seed     uint64        `default:"1" help:"Decides which operations there are, and whom a fault strikes (default: ${default})."`
	Duration time.Duration `placeholder:"TIME" help:"How long a cell works undisturbed, such as 2s. Longer is steadier, and the run takes longer."`
	Mode     []string      `enum:"${modes}" placeholder:"MODE" help:"Run only this way of coordinating; may be repeated: ${modes}."`
	Fault    []string      `enum:"${faults}" placeholder:"FAULT" help:"Run only this fault; may be repeated: ${faults}."`
	Workload []string      `enum:"${workloads}" placeholder:"WORKLOAD" help:"Run only this work; may be repeated: ${workloads}."`
	Workers  int           `default:"3" help:"How many processes work in a cell, 2 to 16 (default: ${default})."`
	Quick    bool          `help:"Fewer cells, and shorter: the counter under four faults, in less than 90 seconds."`
	JSON     bool          `name:"json" help:"Print one JSON object with every figure."`
	HTML     string        `name:"html" placeholder:"FILE" help:"Also write a page of HTML with charts, which needs nothing else."`

	run comparison // nil: the real one
}

// comparison is compare.Run, or a test's replacement.
type comparison func(context.Context, *compare.Options) (*report.Report, error)

// compareNames passes the names of modes, faults and workloads to the flags.
func compareNames() kong.Vars {
	return kong.Vars{
		"modes":     strings.Join(report.Modes(), ","),
		"faults":    strings.Join(report.Faults(), ","),
		"workloads": strings.Join(report.Workloads(), ","),
	}
}

// Help says how long the comparison takes and where its servers come from.
func (*compareCommand) Help() string {
	return `It takes less than ten minutes on two cores, and less than 90 seconds with --quick. PostgreSQL and Redis ` +
		`are started for it and stopped again, as it kills, stops and cuts them off: by a Docker engine that answers, or ` +
		`else from installed postgres and redis-server or valkey-server programs; $FENCEPOST_SERVICES=docker or local ` +
		`forces one. Progress goes to standard error. Exit status 0: the run was carried out, whatever it found.

Examples:

  fencepost compare --quick
  fencepost compare --html comparison.html`
}

// Validate refuses values with which no run is possible.
func (c *compareCommand) Validate() error {
	const fewest, most = 2, 16
	switch {
	case c.Workers < fewest || c.Workers > most:
		return fmt.Errorf("--workers=%d is not %d to %d", c.Workers, fewest, most)
	case c.Duration < 0 || c.Duration > time.Minute:
		return fmt.Errorf("--duration=%v is not above 0 and at most 1m", c.Duration)
	}
	for _, only := range c.choices() {
		if only.names != nil && len(only.names) == 0 { // an empty script variable, say: it does not mean all
			return fmt.Errorf("--%s names none", only.flag)
		}
	}
	return nil
}

// choice is a flag that chooses among names.
type choice struct {
	flag  string
	names []string
}

func (c *compareCommand) choices() []choice {
	return []choice{{"mode", c.Mode}, {"fault", c.Fault}, {"workload", c.Workload}}
}

// Run runs the comparison. It prints the results even if the run ended early; the output then says so.
func (c *compareCommand) Run(ctx context.Context, std *streams) error {
	ctx, stop := untilHangUp(ctx)
	defer stop()
	page, err := newPageFile(c.HTML)
	if err != nil {
		return err
	}
	defer page.discard()

	found, err := c.compare(ctx, std)
	if found == nil {
		return err
	}
	found.Settings.Command = c.line()
	found.Error = errorText(err)
	return errors.Join(err, found.Validate(), page.write(found, err == nil), c.show(std, found))
}

// compare runs the comparison and shows its progress on standard error.
func (c *compareCommand) compare(ctx context.Context, std *streams) (*report.Report, error) {
	worker, err := process.Self("compare-worker")
	if err != nil {
		return nil, err
	}
	run := c.run
	if run == nil {
		run = compare.Run
	}
	progress := newProgress(std.err, onTerminal(std.err))
	defer progress.end()
	return run(ctx, &compare.Options{
		Seed:      c.Seed,
		Duration:  c.Duration,
		Modes:     c.Mode,
		Faults:    c.Fault,
		Workloads: c.Workload,
		Workers:   c.Workers,
		Quick:     c.Quick,
		Worker:    worker,
		Progress:  progress.step,
	})
}

func (c *compareCommand) show(std *streams, found *report.Report) error {
	if c.JSON {
		return std.printJSON(found)
	}
	if err := report.Text(std.out, found, inColor(std.out)); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// line returns the command that repeats the run, without the flags that only say where the result goes.
func (c *compareCommand) line() string {
	words := []string{"fencepost compare", fmt.Sprintf("--seed=%d", c.Seed), fmt.Sprintf("--workers=%d", c.Workers)}
	if c.Duration > 0 {
		words = append(words, "--duration="+c.Duration.String())
	}
	for _, only := range c.choices() {
		if len(only.names) > 0 {
			words = append(words, "--"+only.flag+"="+strings.Join(only.names, ","))
		}
	}
	if c.Quick {
		words = append(words, "--quick")
	}
	return strings.Join(words, " ")
}

type compareWorkerCommand struct{}

// Run runs the worker. Errors of its work are among its events.
func (*compareWorkerCommand) Run(ctx context.Context, std *streams) error {
	return worker.Run(ctx, std.in, std.out)
}
