package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/handoff"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

// clients is how many there are.
const clients = 8

const (
	// hold and pause are how long a client of the hand-off holds the lock and then does without it.
	hold, pause = 2 * time.Millisecond, 5 * time.Millisecond
)

// peersSuite measures the lease beside other lock libraries.
type peersSuite struct {
	rounds  int
	seconds float64
	only    string
	waiters int
	leases  int
	ttl     time.Duration
}

func (s *peersSuite) flags(f *flag.FlagSet) {
	f.IntVar(&s.rounds, "rounds", 9,
		"how often each candidate plays hand-off; calls have four rounds of a fifth of the time for each of these")
	// A second gives each client some sixty turns, so that one more or less is no unfairness.
	f.Float64Var(&s.seconds, "seconds", 1, "how long each candidate plays hand-off in a round")
	f.IntVar(&s.waiters, "waiters", 1000, "how many wait for one name, beside eight")
	f.IntVar(&s.leases, "leases", 100_000, "how many leases are held, beside a thousand")
	f.DurationVar(&s.ttl, "ttl", 30*time.Second, "the TTL of leases that are held; they are watched for a third of it")
	f.StringVar(&s.only, "only", "", "measure these alone, separated by commas: "+strings.Join(jobNames(), ", "))
}

func (s *peersSuite) validate() error {
	const most = 10_000
	switch {
	case s.rounds < 1 || s.rounds > most:
		return fmt.Errorf("-rounds %d is outside 1 to %d", s.rounds, most)
	case !(s.seconds > 0 && s.seconds <= most):
		return fmt.Errorf("-seconds %v is not above 0 and at most %d", s.seconds, most)
	case s.waiters < clients:
		return fmt.Errorf("-waiters %d is below %d", s.waiters, clients)
	case s.leases < 1:
		return fmt.Errorf("-leases %d is below 1", s.leases)
	case s.ttl < time.Second:
		return fmt.Errorf("-ttl %v is below a second", s.ttl)
	}
	return checkOnly(s.only, jobNames())
}

func (s *peersSuite) jobs() []job {
	return slices.DeleteFunc(jobs(), func(j job) bool { return !chosen(s.only, j.name) })
}

func (s *peersSuite) slice() time.Duration { return time.Duration(s.seconds * float64(time.Second)) }

func (s *peersSuite) handoffPlan() handoff.Plan {
	return handoff.Plan{Rounds: s.rounds, Slice: s.slice(), Hold: hold, Pause: pause}
}

func (s *peersSuite) callsPlan() measure.Plan {
	return measure.Plan{Rounds: 4 * s.rounds, Slice: s.slice() / 5, Workers: clients}
}

// patience is many times what a job should take.
func (s *peersSuite) patience() time.Duration { return time.Duration(s.rounds+1) * time.Minute }

func (s *peersSuite) measure(ctx context.Context, stdout, stderr io.Writer) (figures []figure.Figure, err error) {
	started, err := startServers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, started.close()) }()
	_, err = fmt.Fprintf(stdout, "%v\nGOMAXPROCS %d, medians of %d rounds of hand-off and %d of calls\n",
		started.shared, runtime.GOMAXPROCS(0), s.handoffPlan().Rounds, s.callsPlan().Rounds)
	if err != nil {
		return nil, err
	}
	for _, j := range s.jobs() {
		_, _ = fmt.Fprintln(stderr, "measuring:", j.name) // of no consequence where it cannot be read
		of, err := s.measureWithin(ctx, j, started, stdout)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", j.name, err)
		}
		figures = append(figures, of...)
	}
	return figures, figure.Targets(stdout, figures)
}

// measureWithin bounds a job: a lock that is handed to nobody must not keep the run for ever.
func (s *peersSuite) measureWithin(ctx context.Context, j job, started *servers, w io.Writer) ([]figure.Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	return j.measure(ctx, s, started.peers(), w)
}
