package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/checks"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
	"github.com/fencepost-pg/fencepost/lease"
)

type doctorCommand struct {
	serverFlags
	jsonFlag
	TTL         time.Duration `name:"ttl" default:"30s" help:"The TTL of the stores (default: ${default})."`
	Strict      bool          `help:"Warnings count as faults."`
	Conformance bool          `help:"Do what \"fencepost conformance\" does, on the servers of --against."`
	Against     []string      `sep:"none" placeholder:"URL" help:"With --conformance: a PostgreSQL, a Redis, or both (repeat the flag)."`
}

// Help says what the levels mean.
func (*doctorCommand) Help() string {
	return `It looks at both servers, at the schema fencepost, at the tables with tokens and at this host, and prints a ` +
		`line for each thing: ok, warning, fault or skipped, and below it what to do. ` +
		`It changes nothing in PostgreSQL; in Redis it tries the commands of a store on keys of its own. ` +
		`What the role, the user or the server does not let it see is skipped, with the reason. ` +
		`Run it on a host of the workers: with their addresses, to see what they may do; and with an operator's role, ` +
		`to see the most.

Exit status: 0 no fault (warnings are none, unless --strict is given), 78 a fault.

Examples:

  fencepost doctor --namespace billing
  fencepost doctor --strict --json | jq -r '.checks[] | select(.level != "ok") | .found'
  fencepost doctor --conformance --against postgres://host/scratch --against redis://host`
}

// Validate refuses flags that do not go together, and addresses that cannot be read.
func (c *doctorCommand) Validate() error {
	switch {
	case c.Conformance && len(c.Against) == 0:
		return errors.New("--conformance needs --against URL: it makes schemas and keys on that server, and removes them")
	case c.Conformance:
		_, err := c.conformance()
		return err
	case len(c.Against) > 0:
		return errors.New("--against goes with --conformance")
	case c.TTL < lease.MinTTL || c.TTL > lease.MaxTTL:
		return fmt.Errorf("--ttl is outside %v to %v", lease.MinTTL, lease.MaxTTL)
	case !c.named() && len(c.Redis) == 0:
		return errors.New("name a server: --database, --redis or both, or FENCEPOST_POSTGRES_URL and FENCEPOST_REDIS_URL")
	}
	if c.named() {
		if err := c.databaseFlags.Validate(); err != nil {
			return err
		}
	}
	if c.Advisory || len(c.Redis) == 0 {
		return nil
	}
	if err := servers.CheckRedis(c.Redis); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// named reports whether a database is named.
func (c *doctorCommand) named() bool { return c.Database != "" || servers.PostgresNamed() }

// conformance is the command that --conformance stands for.
func (c *doctorCommand) conformance() (*conformanceCommand, error) {
	run := &conformanceCommand{Namespace: c.Namespace, JSON: c.JSON}
	for _, address := range c.Against {
		to := &run.Redis
		if scheme, _, _ := strings.Cut(address, "://"); scheme == "postgres" || scheme == "postgresql" {
			to = &run.Database
		}
		if *to != "" {
			return nil, errors.New("--against names two servers of a kind")
		}
		*to = address
	}
	return run, run.Validate()
}

// doctorResult is what doctor --json prints.
type doctorResult struct {
	*checks.Report
	Faults   int    `json:"faults"`
	Warnings int    `json:"warnings"`
	Skipped  int    `json:"skipped"`
	Error    string `json:"error,omitempty"`
}

// Run looks at everything.
func (c *doctorCommand) Run(ctx context.Context, std *streams) error {
	if c.Conformance {
		run, err := c.conformance()
		if err != nil {
			return err
		}
		return run.Run(ctx, std)
	}
	var printed error
	opts := &checks.Options{
		Database: c.Database, HasDatabase: c.named(), Redis: c.Redis, Advisory: c.Advisory, Namespace: c.Namespace,
		TTL: c.TTL,
	}
	if !c.JSON {
		opts.Each = func(r checks.Result) { printed = errors.Join(printed, std.printResult(r)) }
	}
	report, err := checks.Run(ctx, opts)
	sum := doctorResult{report, report.Count(checks.Fault), report.Count(checks.Warning), report.Count(checks.Skipped), ""}
	total := fmt.Sprintf("%s, %s, %d skipped, %d ok", plural(sum.Faults, "fault"), plural(sum.Warnings, "warning"),
		sum.Skipped, report.Count(checks.OK))
	if err == nil && (sum.Faults > 0 || c.Strict && sum.Warnings > 0) {
		err = &statusError{exitUnfit, errors.New(total)}
	}
	if c.JSON {
		for i := range report.Checks {
			report.Checks[i].Found = withoutSecrets(report.Checks[i].Found)
		}
		sum.Error = errorText(err)
		return errors.Join(err, std.printJSON(sum))
	}
	if err == nil {
		printed = errors.Join(printed, std.printf("%s\n", total))
	}
	return errors.Join(err, printed)
}

// plural counts things.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

// printResult prints what was found, and below it what to do.
func (s *streams) printResult(r checks.Result) error {
	found := shown(oneLine(withoutSecrets(r.Found)))
	if err := s.printf("%-8s %-9s %-18s %s\n", r.Level, r.Server, r.Name, found); err != nil || r.Do == "" {
		return err
	}
	return s.printf("%-37s > %s\n", "", r.Do)
}
