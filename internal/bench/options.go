package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/internal/bench/figures"
	"github.com/fencepost-pg/fencepost/internal/bench/measure"
)

// options are the command line.
type options struct {
	rounds  int
	seconds float64
	only    string
	fences  int
}

// parse reads the command line. What is wrong with it, and help, goes to stderr.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 160, "how often each candidate is measured")
	f.Float64Var(&o.seconds, "seconds", 0.05, "how long each candidate runs in a round")
	f.StringVar(&o.only, "only", "", "measure this figure alone: lease, fence, table, advisory, forupdate, store, door, claims, guards, many or load")
	f.IntVar(&o.fences, "fences", 1_000_000, "how many fences claims and guards are measured with, beside a thousand")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.validate()
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err) // nowhere left to report to
	}
	return o, err
}

func (o options) validate() error {
	const most = 3600
	switch {
	case o.rounds < 1:
		return fmt.Errorf("-rounds %d is below 1", o.rounds)
	case !(o.seconds > 0 && o.seconds <= most):
		return fmt.Errorf("-seconds %v is not above 0 and at most %d", o.seconds, most)
	case o.fences < figures.Workers:
		return fmt.Errorf("-fences %d is below %d", o.fences, figures.Workers)
	case len(o.figures()) == 0:
		return fmt.Errorf("-only %q names no figure", o.only)
	}
	return nil
}

func (o options) figures() []figures.Figure {
	return slices.DeleteFunc(figures.All(), func(f figures.Figure) bool { return o.only != "" && o.only != f.Name })
}

// plan has many short slices rather than few long ones: what disturbs a machine for a second then
// strikes all candidates alike.
func (o options) plan() measure.Plan {
	slice := time.Duration(o.seconds * float64(time.Second))
	return measure.Plan{Rounds: o.rounds, Workers: figures.Workers, Slice: slice, WarmUp: min(10*slice, 10*time.Second)}
}
