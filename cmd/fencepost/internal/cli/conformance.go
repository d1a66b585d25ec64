package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/conformance"
)

type conformanceCommand struct {
	Database  string `env:"FENCEPOST_POSTGRES_URL" placeholder:"URL" help:"A PostgreSQL, as postgres://user:password@host:port/name."`
	Redis     string `env:"FENCEPOST_REDIS_URL" placeholder:"URL" help:"A Redis, as redis://user:password@host:port/0; of a cluster, any node."`
	Namespace string `default:"conformance" help:"The namespace whose keys and channels the user of Redis may use (default: ${default})."`
	JSON      bool   `name:"json" help:"Print one JSON object."`
}

// Help says what the command does to the servers.
func (*conformanceCommand) Help() string {
	return `It tries on the servers given what the library rests on, one thing after the other, and prints a line for ` +
		`each: ok, failed, or not tried. It needs no migrations, but the right to make schemas. All that it makes has a ` +
		`name of its own, and is removed at the end. At the end it says which of the promises of docs/safety.md hold by ` +
		`that. "fencepost doctor --conformance --against URL" is the same command. Exit status 0: all of it holds. What ` +
		`one part of the library alone needs may be left untried. 78: something does not hold.

Example:

  fencepost conformance --database "$DATABASE_URL" --redis "$REDIS_URL"`
}

// Validate refuses a run that has no server to check.
func (c *conformanceCommand) Validate() error {
	if c.Database == "" && c.Redis == "" {
		return errors.New("give it --database, --redis or both, or set FENCEPOST_POSTGRES_URL and FENCEPOST_REDIS_URL")
	}
	if _, err := pgx.ParseConfig(c.Database); err != nil && c.Database != "" {
		return errors.New("--database is not a PostgreSQL address") // the cause quotes it
	}
	if _, err := redis.ParseURL(c.Redis); err != nil && c.Redis != "" {
		return errors.New("--redis is not a Redis address")
	}
	return nil
}

// conformanceResult is what conformance --json prints.
type conformanceResult struct {
	*conformance.Report
	Promises []conformance.Promise `json:"promises,omitempty"`
	Holds    bool                  `json:"holds"`
	Error    string                `json:"error,omitempty"`
}

// Run checks the servers.
func (c *conformanceCommand) Run(ctx context.Context, std *streams) (err error) {
	ctx, stop := untilHangUp(ctx)
	defer stop()
	opts := &conformance.Options{Namespace: c.Namespace}
	if c.Database != "" {
		if opts.Postgres, err = pgx.ParseConfig(c.Database); err != nil {
			return errors.New("--database is not a PostgreSQL address")
		}
	}
	if c.Redis != "" {
		if opts.Redis, err = openRedis(ctx, c.Redis); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opts.Redis.Close()) }()
	}
	var printed error
	if !c.JSON {
		opts.Each = func(r conformance.Result) { printed = errors.Join(printed, std.printCheck(r)) }
	}
	report, err := conformance.Run(ctx, opts)
	if err == nil && !report.Holds() {
		err = &statusError{exitUnfit, fmt.Errorf("of %d checks %d failed, and %d were not tried",
			len(report.Checks), report.Count(conformance.Failed), report.Count(conformance.NotTried))}
	}
	if c.JSON {
		for i := range report.Checks {
			report.Checks[i].Why = withoutSecrets(report.Checks[i].Why)
		}
		return errors.Join(err, std.printJSON(conformanceResult{report, report.Promises(), err == nil, errorText(err)}))
	}
	for _, p := range report.Promises() {
		printed = errors.Join(printed, std.printPromise(p))
	}
	return errors.Join(err, printed)
}

// printPromise prints one promise as a line.
func (s *streams) printPromise(p conformance.Promise) error {
	why := ""
	if p.Standing != conformance.Holds {
		why = " (" + strings.Join(p.Checks, ", ") + ")"
	}
	return s.printf("%-9s %-9s %-10s %s%s\n", p.Standing, "promise", p.Name, p.Claim, why)
}

// printCheck prints one result as a line.
func (s *streams) printCheck(r conformance.Result) error {
	why := oneLine(withoutSecrets(r.Why))
	if why != "" {
		why = ": " + why
	}
	if r.Part != "" {
		why = " (" + r.Part + " alone needs it)" + why
	}
	return s.printf("%-9s %-9s %-10s %s%s\n", r.Verdict, r.Server, r.Name, r.Claim, why)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// openRedis makes a client of the kind that the server needs. If the server does not answer, the checks report that.
func openRedis(ctx context.Context, address string) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errors.New("--redis is not a Redis address") // the cause quotes it
	}
	single := redis.NewClient(o)
	info, err := single.Info(ctx, "cluster").Result()
	if err != nil || !strings.Contains(info, "cluster_enabled:1") {
		return single, nil //nolint:nilerr // not everybody may ask
	}
	if err := single.Close(); err != nil {
		return nil, err
	}
	cluster, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, errors.New("--redis is not the address of a node of a cluster: it names a database, perhaps")
	}
	return redis.NewClusterClient(cluster), nil
}
