package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/bench/handoff"
	"github.com/fencepost-pg/fencepost/internal/bench/measure"
)

// clients is how many there are.
const clients = 8

const (
	// hold and pause are how long a client of the hand-off holds the lock and then does without it.
	hold, pause = 2 * time.Millisecond, 5 * time.Millisecond
	// handoffSlice gives each client some sixty turns, so that one more or less is no unfairness.
	handoffSlice = time.Second
	callsSlice   = 200 * time.Millisecond
)

// options are the command line.
type options struct {
	rounds int
	only   string
}

// parse reads the command line. What is wrong with it, and help, goes to stderr.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 9, "how often each candidate plays hand-off for a second; calls have four rounds of 0.2 s for each of these")
	f.StringVar(&o.only, "only", "", "measure this alone: handoff, calls or quorum")
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
	const most = 10_000
	switch {
	case o.rounds < 1 || o.rounds > most:
		return fmt.Errorf("-rounds %d is outside 1 to %d", o.rounds, most)
	case len(o.jobs()) == 0:
		return fmt.Errorf("-only %q names nothing to measure", o.only)
	}
	return nil
}

func (o options) jobs() []job {
	return slices.DeleteFunc(jobs(), func(j job) bool { return o.only != "" && o.only != j.name })
}

func (o options) handoffPlan() handoff.Plan {
	return handoff.Plan{Rounds: o.rounds, Slice: handoffSlice, Hold: hold, Pause: pause}
}

func (o options) callsPlan() measure.Plan {
	return measure.Plan{Rounds: 4 * o.rounds, Slice: callsSlice, Workers: clients}
}

// patience is many times what a job should take.
func (o options) patience() time.Duration { return time.Duration(o.rounds+1) * time.Minute }
