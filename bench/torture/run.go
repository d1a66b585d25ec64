package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/bench/page"
	"github.com/fencepost-pg/fencepost/bench/torture/cell"
	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/bench/torture/report"
	"github.com/fencepost-pg/fencepost/internal/process"
)

// options are what the flags say.
type options struct {
	cell      cell.Options
	modes     []load.Mode
	workloads []load.Workload
	faults    []string
	folder    string
	keep      bool
	json      string
	markdown  string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("torture", flag.ContinueOnError)
	flags.SetOutput(stderr)
	modes := flags.String("mode", "redis,lock", "modes, or all: "+join(load.Modes()))
	workloads := flags.String("workload", "all", "workloads, or all: "+join(load.Workloads()))
	faults := flags.String("fault", "all",
		"lists of faults, separated by semicolons; each list is a cell. all, kept (what leases survive), or names")
	flags.Uint64Var(&o.cell.Seed, "seed", 0, "seed of operations and faults (default: a new one, which is printed)")
	flags.DurationVar(&o.cell.Duration, "duration", 10*time.Second, "how long faults are made in each cell")
	flags.DurationVar(&o.cell.Within, "within", 10*time.Second,
		"the time in which each resource is served after the last fault")
	flags.IntVar(&o.cell.Workers, "workers", 3, "worker processes")
	flags.IntVar(&o.cell.Threads, "threads", 3, "threads of each worker")
	flags.IntVar(&o.cell.Groups, "groups", 3, "resources")
	flags.DurationVar(&o.cell.TTL, "ttl", 500*time.Millisecond, "TTL of leases and locks")
	flags.StringVar(&o.folder, "dir", "", "folder for the histories (default: a new one in the system's temporary folder)")
	flags.BoolVar(&o.keep, "keep", false, "keep the histories of all cells, not only of those that are broken")
	flags.StringVar(&o.json, "json", "", "write the results into this file")
	flags.StringVar(&o.markdown, "markdown", "", "fill the block \"torture\" of this page")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.cell.Seed == 0 {
		o.cell.Seed = rand.Uint64()
	}
	o.faults = strings.Split(*faults, ";")
	var err error
	if o.modes, err = choose(*modes, load.Modes()); err != nil {
		return nil, err
	}
	if o.workloads, err = choose(*workloads, load.Workloads()); err != nil {
		return nil, err
	}
	o.cell.Worker, err = process.Self(load.Argument)
	return o, err
}

func join[T ~string](all []T) string {
	var names []string
	for _, one := range all {
		names = append(names, string(one))
	}
	return strings.Join(names, ", ")
}

func choose[T ~string](list string, all []T) (chosen []T, err error) {
	if list == "all" {
		return all, nil
	}
	for _, name := range strings.Split(list, ",") {
		if !slices.Contains(all, T(name)) {
			return nil, fmt.Errorf("%q is none of %s", name, join(all))
		}
		chosen = append(chosen, T(name))
	}
	return chosen, nil
}

// run runs all cells. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int, err error) {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, err
	}
	if o.folder == "" {
		if o.folder, err = os.MkdirTemp("", "fencepost-torture-"); err != nil {
			return 2, fmt.Errorf("make a folder: %w", err)
		}
	}
	lab, err := cell.OpenLab(ctx)
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	r := &report.Report{Date: time.Now().UTC(), Seed: o.cell.Seed, Versions: lab.Versions()}
	err = say(stdout, "seed %d\n", o.cell.Seed)
	if err == nil {
		err = o.cells(ctx, lab, r, stdout)
	}
	if err := errors.Join(err, o.write(r)); err != nil {
		return 2, err
	}
	if r.Expected() {
		return 0, nil
	}
	return 1, say(stdout, "a promise is broken; its history and a picture are in %s\n", o.folder)
}

func say(out io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(out, format, args...); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// write writes the files that the flags name.
func (o *options) write(r *report.Report) error {
	if o.json != "" {
		text, err := r.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, text, 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if o.markdown == "" {
		return nil
	}
	document, err := os.ReadFile(o.markdown)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	filled, err := page.Fill(string(document), "torture", r.Markdown())
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.markdown, []byte(filled), 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// cells runs each workload in each mode under each list of faults, as far as that makes sense.
func (o *options) cells(ctx context.Context, lab *cell.Lab, r *report.Report, stdout io.Writer) error {
	for _, mode := range o.modes {
		for _, workload := range o.workloads {
			for _, faults := range o.lists(mode, workload) {
				c := o.cell
				c.Mode, c.Workload, c.Faults = mode, workload, faults
				c.Folder = filepath.Join(o.folder, strings.NewReplacer(",", "+", ";", "+").Replace(c.Name()))
				result, err := o.one(ctx, lab, &c, stdout)
				if err != nil {
					return err
				}
				r.Cells = append(r.Cells, result)
			}
		}
	}
	return nil
}

// lists returns the lists of faults for a workload in a mode. Under all faults, leases alone promise nothing about each
// other, so there is also a cell of those that they survive.
func (o *options) lists(mode load.Mode, workload load.Workload) []string {
	switch {
	case !workload.Makes(mode):
		return nil
	case workload == load.Lease && slices.Equal(o.faults, []string{"all"}):
		return []string{"all", "kept"}
	}
	return o.faults
}

func (o *options) one(ctx context.Context, lab *cell.Lab, c *cell.Options, stdout io.Writer) (*cell.Result, error) {
	r, h, err := cell.Run(ctx, lab, c)
	if err != nil {
		return nil, err
	}
	if err := say(stdout, "%s", report.Line(r)); err != nil {
		return nil, err
	}
	broken := r.Broken()
	if len(broken) == 0 && !o.keep {
		return r, os.RemoveAll(c.Folder)
	}
	for _, v := range broken {
		if picture := report.Timeline(h, &v); picture != nil {
			path := filepath.Join(c.Folder, v.Check+".svg")
			if err := os.WriteFile(path, picture, 0o644); err != nil {
				return nil, fmt.Errorf("write a picture: %w", err)
			}
		}
	}
	return r, cell.Keep(c, h)
}
