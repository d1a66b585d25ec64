package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/internal/bench/figures"
	"github.com/fencepost-pg/fencepost/internal/bench/measure"
	"github.com/fencepost-pg/fencepost/internal/bench/report"
	"github.com/fencepost-pg/fencepost/internal/services"
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
	s, err := services.Start(ctx, &services.Options{Durable: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return withServers(ctx, s, o.fences, func(ctx context.Context, servers figures.Servers) error {
		durability, err := durabilityOf(ctx, servers.Pool)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%v\n%s\n%d rounds of %v s for each candidate, GOMAXPROCS %d\n",
			s, durability, o.rounds, o.seconds, runtime.GOMAXPROCS(0))
		if err != nil {
			return err
		}
		results, err := compare(ctx, o, servers, stderr)
		if err != nil {
			return err
		}
		if path := os.Getenv(envJSON); path != "" {
			if err := report.JSONFile(path, results); err != nil {
				return err
			}
		}
		return report.Table(stdout, results)
	})
}

func compare(ctx context.Context, o options, s figures.Servers, stderr io.Writer) ([]measure.Result, error) {
	var results []measure.Result
	for _, f := range o.figures() {
		_, _ = fmt.Fprintln(stderr, "measuring:", f.Name) // of no consequence where it cannot be read
		c, err := f.Prepare(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", f.Name, err)
		}
		result, err := measure.Compare(ctx, f.Plan(o.plan()), c)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", f.Name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// durabilityOf says whether commits are as durable as in production, without which the figures of
// PostgreSQL say little. The servers may be somebody's own.
func durabilityOf(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var fsync, commit string
	err := pool.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`).Scan(&fsync, &commit)
	if err != nil {
		return "", fmt.Errorf("ask for fsync: %w", err)
	}
	text := fmt.Sprintf("fsync %s, synchronous_commit %s", fsync, commit)
	if fsync != "on" || commit == "off" {
		text += ": NOT as in production, take the figures of PostgreSQL for what they are"
	}
	return text, nil
}
