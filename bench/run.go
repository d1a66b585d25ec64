package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/figure"
)

// envJSON names a file for the figures in JSON.
const envJSON = "BENCH_JSON"

// suite is one set of measurements. Its fields are its flags.
type suite interface {
	// flags adds the suite's flags to a set.
	flags(f *flag.FlagSet)
	// validate returns an error if a flag has a value that cannot be.
	validate() error
	// measure writes tables to stdout and its progress to stderr. It starts its servers, and leaves nothing on them.
	measure(ctx context.Context, stdout, stderr io.Writer) ([]figure.Figure, error)
}

// suiteOf returns the suite of a name, or nil.
func suiteOf(name string) suite {
	switch name {
	case "library":
		return &librarySuite{}
	case "peers":
		return &peersSuite{}
	case "page":
		return &pageSuite{}
	default:
		return nil
	}
}

// run measures what args ask for and returns the exit status: 0 if everything was measured, whether or not targets were
// met; 1 after an error; 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	figures, err := s.measure(ctx, stdout, stderr)
	if path := os.Getenv(envJSON); err == nil && path != "" && figures != nil {
		err = figure.JSONFile(path, figures)
	}
	if err != nil {
		complain(stderr, err)
		return 1
	}
	return 0
}

func complain(stderr io.Writer, err error) {
	_, _ = fmt.Fprintln(stderr, "bench:", err) // nowhere left to report to
}

// parse reads the command line: a suite and its flags. What is wrong with it, and help, goes to stderr.
func parse(args []string, stderr io.Writer) (suite, error) {
	var s suite
	if len(args) > 0 {
		s = suiteOf(args[0])
	}
	if s == nil {
		err := errors.New("say what to measure: library or peers, and its flags, or page; library -help lists them")
		complain(stderr, err)
		return nil, err
	}
	return s, parseFlags(s, args, stderr)
}

func parseFlags(s suite, args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	f.SetOutput(stderr)
	s.flags(f)
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	err := s.validate()
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	if err != nil {
		complain(stderr, err)
	}
	return err
}

// chosen reports whether a value of the flag -only chooses a name. An empty value chooses every one.
func chosen(only, name string) bool {
	return only == "" || slices.Contains(strings.Split(only, ","), name)
}

// checkOnly returns an error if a value of the flag -only chooses what there is not.
func checkOnly(only string, names []string) error {
	for name := range strings.SplitSeq(only, ",") {
		if only != "" && !slices.Contains(names, name) {
			return fmt.Errorf("-only %q: there is no %q, but %s", only, name, strings.Join(names, ", "))
		}
	}
	return nil
}

// removeKeys removes the keys that match a pattern.
func removeKeys(ctx context.Context, client *redis.Client, pattern string) error {
	keys := client.Scan(ctx, 0, pattern, 10_000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("remove a key: %w", err)
		}
	}
	return keys.Err()
}
