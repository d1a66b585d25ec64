package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/library"
	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// librarySuite measures the library beside hand-written code.
type librarySuite struct {
	rounds  int
	seconds float64
	only    string
	fences  int
	rows    int
}

func (s *librarySuite) flags(f *flag.FlagSet) {
	f.IntVar(&s.rounds, "rounds", 90, "how often each candidate is measured")
	f.Float64Var(&s.seconds, "seconds", 0.05, "how long each candidate runs in a round")
	f.StringVar(
		&s.only,
		"only",
		"",
		"measure these figures alone, separated by commas: "+strings.Join(figureNames(), ", "),
	)
	f.IntVar(&s.fences, "fences", 1_000_000, "how many fences claims and guards are measured with, beside a thousand")
	f.IntVar(&s.rows, "rows", 100_000, "how many rows a load copies: a power of ten")
}

func (s *librarySuite) validate() error {
	const most = 3600
	switch {
	case s.rounds < 1:
		return fmt.Errorf("-rounds %d is below 1", s.rounds)
	case !(s.seconds > 0 && s.seconds <= most):
		return fmt.Errorf("-seconds %v is not above 0 and at most %d", s.seconds, most)
	case s.rows < 10 || !strings.HasPrefix(strconv.Itoa(s.rows), "1") || strings.Trim(strconv.Itoa(s.rows)[1:], "0") != "":
		return fmt.Errorf("-rows %d is not a power of ten", s.rows)
	case s.fences < library.Workers:
		return fmt.Errorf("-fences %d is below %d", s.fences, library.Workers)
	}
	return checkOnly(s.only, figureNames())
}

func (s *librarySuite) figures() []library.Figure {
	return slices.DeleteFunc(library.All(), func(f library.Figure) bool { return !chosen(s.only, f.Name) })
}

func figureNames() []string {
	var names []string
	for _, f := range library.All() {
		names = append(names, f.Name)
	}
	return names
}

// plan has many short slices rather than few long ones: what disturbs a machine for a second then strikes all
// candidates alike.
func (s *librarySuite) plan() measure.Plan {
	slice := time.Duration(s.seconds * float64(time.Second))
	return measure.Plan{Rounds: s.rounds, Workers: library.Workers, Slice: slice, WarmUp: min(10*slice, 10*time.Second)}
}

func (s *librarySuite) measure(ctx context.Context, stdout, stderr io.Writer) (figures []figure.Figure, err error) {
	started, err := services.Start(ctx, &services.Options{Durable: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, started.Close()) }()
	err = withServers(ctx, started, func(ctx context.Context, servers library.Servers) error {
		servers.Fences, servers.Rows = s.fences, s.rows
		durability, err := durabilityOf(ctx, servers.Pool)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%v\n%s\n%d rounds of %v s for each candidate, GOMAXPROCS %d\n",
			started, durability, s.rounds, s.seconds, runtime.GOMAXPROCS(0))
		if err != nil {
			return err
		}
		results, err := s.compare(ctx, servers, stderr)
		if err != nil {
			return err
		}
		figures = figure.OfResults(results)
		return figure.Results(stdout, results)
	})
	return figures, err
}

func (s *librarySuite) compare(
	ctx context.Context,
	servers library.Servers,
	stderr io.Writer,
) ([]measure.Result, error) {
	var results []measure.Result
	for _, f := range s.figures() {
		_, _ = fmt.Fprintln(stderr, "measuring:", f.Name) // of no consequence where it cannot be read
		c, err := f.Prepare(ctx, servers)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", f.Name, err)
		}
		result, err := measure.Compare(ctx, f.Plan(s.plan()), c)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", f.Name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

// durabilityOf says whether commits are as durable as in production, without which the figures of PostgreSQL say
// little. The servers may be somebody's own.
func durabilityOf(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var fsync, commit string
	err := pool.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit')`).
		Scan(&fsync, &commit)
	if err != nil {
		return "", fmt.Errorf("ask for fsync: %w", err)
	}
	text := fmt.Sprintf("fsync %s, synchronous_commit %s", fsync, commit)
	if fsync != "on" || commit == "off" {
		text += ": NOT as in production, take the figures of PostgreSQL for what they are"
	}
	return text, nil
}
