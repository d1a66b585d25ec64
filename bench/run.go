package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/fencepost-pg/fencepost/bench/figure"
)

// envJSON names a file for the figures in JSON.
const envJSON = "BENCH_JSON"

// run measures what args ask for and returns the exit status: 0 where everything was measured, whether
// or not targets were met; 1 after an error; 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := bench(ctx, o, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err) // nowhere left to report to
		return 1
	}
	return 0
}

func bench(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	_, err = fmt.Fprintf(stdout, "%v\nGOMAXPROCS %d, medians of %d rounds of hand-off and %d of calls\n",
		s.shared, runtime.GOMAXPROCS(0), o.handoffPlan().Rounds, o.callsPlan().Rounds)
	if err != nil {
		return err
	}
	var all []figure.Figure
	for _, j := range o.jobs() {
		_, _ = fmt.Fprintln(stderr, "measuring:", j.name) // of no consequence where it cannot be read
		figures, err := measureWithin(ctx, j, o, s, stdout)
		if err != nil {
			return fmt.Errorf("measure %s: %w", j.name, err)
		}
		all = append(all, figures...)
	}
	if path := os.Getenv(envJSON); path != "" {
		if err := figure.JSONFile(path, all); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(stdout, "\ntargets (each ratio is the median of the rounds' own ratios)\n"); err != nil {
		return err
	}
	return figure.Targets(stdout, all)
}

// measureWithin bounds a job: a lock that is handed to nobody must not keep the run for ever.
func measureWithin(ctx context.Context, j job, o options, s *servers, w io.Writer) ([]figure.Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience())
	defer cancel()
	return j.measure(ctx, o, s.peers(), w)
}
