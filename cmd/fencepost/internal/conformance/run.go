package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// Options say which servers are checked, and how.
type Options struct {
	// Postgres says how to connect to PostgreSQL, as a pool of the application would. Nil: PostgreSQL is not checked.
	Postgres *pgx.ConnConfig
	// Redis is a client of a single server, of a primary, or of a cluster. Nil: Redis is not checked.
	Redis redis.UniversalClient
	// Namespace is a namespace whose keys and channels the Redis user may use. Default "conformance".
	Namespace string
	// Watch is how long a statement that has to wait for another one is watched before it counts as waiting. It is at
	// least five round trips. Default 200 ms.
	Watch time.Duration
	// Each, if not nil, is called with each result. Default nil.
	Each func(Result)

	edit func(sql string) string // of the migrations and the table, for a test that takes something out
}

// checkPatience bounds one check.
const checkPatience = 20 * time.Second

// Run runs all checks, one after the other. If ctx ends, Run ends early, and still removes what it has created. The
// report is never nil.
//
// The error says that the run ended early, or what could not be removed.
func Run(ctx context.Context, opts *Options) (*Report, error) {
	r := &run{opts: *opts, report: &Report{}}
	if r.opts.Namespace == "" {
		r.opts.Namespace = "conformance"
	}
	if r.opts.Watch == 0 {
		r.opts.Watch = 200 * time.Millisecond
	}
	if r.opts.edit == nil {
		r.opts.edit = func(sql string) string { return sql }
	}
	var left error
	if r.opts.Postgres != nil {
		s := newScratch(&r.opts)
		r.all(ctx, Postgres, s.checks())
		left = errors.Join(left, s.remove(ctx))
	}
	if r.opts.Redis != nil {
		k := newKeyspace(&r.opts)
		r.all(ctx, Redis, k.checks())
		left = errors.Join(left, k.remove(ctx))
	}
	return r.report, errors.Join(ctx.Err(), left)
}

type run struct {
	opts   Options
	report *Report
}

// check is one thing that must hold.
type check struct {
	name, claim string
	part        string
	needs       []string // checks of the same server that come before it
	// try returns a nil error if the check holds, and a text if there is more to say.
	try func(ctx context.Context) (found string, err error)
}

// holds makes a try from a function that has no text to return.
func holds(try func(ctx context.Context) error) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return "", try(ctx) }
}

// all runs the checks of one server.
func (r *run) all(ctx context.Context, server string, checks []check) {
	good := make(map[string]bool)
	for _, c := range checks {
		result := c.carryOut(ctx, good)
		result.Server = server
		good[c.name] = result.Verdict == OK
		r.report.Checks = append(r.report.Checks, result)
		if r.opts.Each != nil {
			r.opts.Each(result)
		}
	}
}

// untried is why a check of one part of the library was not tried.
type untried struct{ why string }

func (u *untried) Error() string { return u.why }

func untriedf(format string, args ...any) error { return &untried{fmt.Sprintf(format, args...)} }

func (c *check) carryOut(ctx context.Context, good map[string]bool) Result {
	result := Result{Name: c.name, Claim: c.claim, Part: c.part, Verdict: NotTried}
	missing := slices.DeleteFunc(slices.Clone(c.needs), func(name string) bool { return good[name] })
	switch {
	case ctx.Err() != nil:
		result.Why = "interrupted"
		return result
	case len(missing) > 0:
		result.Why = "it needs: " + strings.Join(missing, ", ")
		return result
	}
	bounded, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	found, err := c.try(bounded)
	result.Why = found
	var none *untried
	switch {
	case ctx.Err() != nil:
		result.Why = "interrupted"
	case err == nil:
		result.Verdict = OK
	case c.part != "" && errors.As(err, &none):
		result.Why = none.why
	default:
		result.Verdict, result.Why = Failed, err.Error()
	}
	return result
}
