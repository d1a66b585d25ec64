package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
)

// Options say what is looked at.
type Options struct {
	// Database is PostgreSQL's address. Empty with HasDatabase: libpq's variables have it.
	Database    string
	HasDatabase bool
	// Redis are the addresses of one Redis, or of the servers of a quorum. None: Redis is skipped.
	Redis []string
	// Advisory says that there is no Redis: the leases are advisory locks.
	Advisory bool
	// Namespace is that of the stores. Default "default".
	Namespace string
	// TTL is that of the stores. Default 30 s.
	TTL time.Duration
	// Each, if not nil, is called with each result. Default nil.
	Each func(Result)

	edit func(*limits) // for tests
}

// limits are what a test sets otherwise, because a real server reaches them only after weeks.
type limits struct {
	now          func() time.Time
	clockSources string        // the folder
	dead         int64         // tuples of a table that are too many
	ids          int64         // transaction ids and multixacts in use that are too many
	old          time.Duration // of a transaction that holds up claims; the TTL, or more
}

// checkPatience bounds one check, and connectPatience the first answer of a server.
const (
	checkPatience   = 20 * time.Second
	connectPatience = 10 * time.Second
)

// Run looks at everything, one thing after the other. If ctx ends, the rest is skipped. The error says that.
func Run(ctx context.Context, opts *Options) (*Report, error) {
	r := &run{opts: *opts, report: &Report{}}
	if r.opts.Namespace == "" {
		r.opts.Namespace = "default"
	}
	if r.opts.TTL == 0 {
		r.opts.TTL = 30 * time.Second
	}
	r.limits = limits{
		now: time.Now, clockSources: "/sys/devices/system/clocksource/clocksource0", dead: 10_000, ids: 1_000_000_000,
		old: max(r.opts.TTL, 30*time.Second),
	}
	if r.opts.edit != nil {
		r.opts.edit(&r.limits)
	}
	r.host(ctx)
	p := r.openPostgres(ctx)
	defer p.close()
	servers := r.openRedis(ctx)
	defer servers.close()
	r.both(ctx, p, servers)
	return r.report, ctx.Err()
}

type run struct {
	opts   Options
	limits limits
	report *Report
}

// check looks at one thing.
type check struct {
	name  string
	needs []string // checks of the same server without which this one cannot be made
	look  func(ctx context.Context) ([]finding, error)
}

// all carries out checks, in their order, and reports which of them found neither a fault nor a reason to skip it.
func (r *run) all(ctx context.Context, server string, checks []check) (passed map[string]bool) {
	passed = make(map[string]bool)
	for _, c := range checks {
		findings := c.carryOut(ctx, passed)
		passed[c.name] = !slices.ContainsFunc(findings, func(f finding) bool {
			return f.level == Fault || f.level == Skipped
		})
		for _, f := range findings {
			r.add(server, c.name, f)
		}
	}
	return passed
}

func (r *run) add(server, name string, f finding) {
	result := Result{Server: server, Name: name, Level: f.level, Found: f.found, Do: f.do}
	r.report.Checks = append(r.report.Checks, result)
	if r.opts.Each != nil {
		r.opts.Each(result)
	}
}

func (c *check) carryOut(ctx context.Context, passed map[string]bool) []finding {
	missing := slices.DeleteFunc(slices.Clone(c.needs), func(name string) bool { return passed[name] })
	if len(missing) > 0 {
		return []finding{{level: Skipped, found: "look at these first: " + strings.Join(missing, ", ")}}
	}
	bounded, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	findings, err := c.look(bounded)
	switch {
	case ctx.Err() != nil:
		return []finding{{level: Skipped, found: "interrupted"}}
	case err == nil:
		return findings
	case refused(err):
		return append(findings, finding{level: Skipped, found: fmt.Sprintf("it cannot be looked at: %v", err)})
	}
	return append(findings, finding{Fault, fmt.Sprintf("it could not be looked at: %v", err), "see the error"})
}

// refused reports whether a server refused a question: this role or user may not ask it, or the server, a managed one
// perhaps, does not know it.
func refused(err error) bool {
	if server, ok := pgerr.ServerError(err); ok {
		return slices.Contains([]string{pgerr.CodeInsufficientPrivilege, pgerr.CodeUnsupported, "42704", "42883", "42P01"},
			server.Code)
	}
	return notAllowed(err) || errors.Is(err, errNotSaid)
}

// notAllowed reports whether Redis refused a command, or does not know it.
func notAllowed(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown")
}

// errNotSaid marks an answer that lacks what was asked for.
var errNotSaid = errors.New("the server does not say")
