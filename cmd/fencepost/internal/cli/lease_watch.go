package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

type leaseWatch struct {
	serverFlags
	JSON     bool          `name:"json" help:"Print one JSON object per line."`
	Resource []string      `arg:"" optional:"" help:"Resources, without the namespace. Without any: the leases that are held, see --prefix."`
	Prefix   string        `placeholder:"TEXT" help:"Only resources that begin with this."`
	Interval time.Duration `default:"1s" help:"How long to wait between two looks (default: ${default})."`
	For      time.Duration `placeholder:"TIME" help:"End after this time."`
	Count    int           `placeholder:"N" help:"End after so many changes. What the first look finds is no change."`
	Limit    int           `default:"1000" help:"How many resources at most, if none is named (default: ${default})."`
}

// Help says what is seen, and what is not.
func (*leaseWatch) Help() string {
	return `It prints where each resource stands, and then one line per change of its holder, token, queue or ` +
		`fence; a renewal is no change. ` +
		`It looks every --interval, and no message tells it anything: what comes and goes between two looks is not ` +
		`seen, but the token has risen. ` +
		`Without names it finds the leases by SCAN, and spends a tenth of its time on that at most. ` +
		`If a server stops to answer, it says so on standard error, and goes on. It ends by a signal, --for or ` +
		`--count, with status 0.

Examples:

  fencepost lease watch invoice:2026-11
  fencepost lease watch --prefix invoice: --for 10m --json
  fencepost lease watch invoice:2026-11 --count 1 && ./tell.sh`
}

// Validate refuses what would watch nothing, or too often.
func (c *leaseWatch) Validate() error {
	switch {
	case len(c.Resource) > 0 && c.Prefix != "":
		return errors.New("name resources or give a --prefix, not both")
	case c.For < 0 || c.Count < 0:
		return errors.New("--for and --count are not negative")
	}
	if err := errors.Join(checkInterval(c.Interval), checkLimit(c.Limit)); err != nil {
		return err
	}
	return c.serverFlags.Validate()
}

// shortestInterval bounds how often servers are asked.
const shortestInterval = 100 * time.Millisecond

func checkInterval(interval time.Duration) error {
	if interval < shortestInterval {
		return fmt.Errorf("--interval is %v or more", shortestInterval)
	}
	return nil
}

// Run watches until it is told to end.
func (c *leaseWatch) Run(ctx context.Context, std *streams) error {
	return c.on(ctx, func(site *operate.Site) error {
		ctx := ctx
		if c.For > 0 { // the time begins once the servers are there
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.For)
			defer cancel()
		}
		changes := 0
		return c.follow(
			ctx,
			std,
			site.Watch(c.Resource, c.Prefix, c.Limit),
			func(seen []operate.Change, first bool) (bool, error) {
				for _, change := range seen {
					if err := c.print(std, change); err != nil {
						return true, err
					}
					if !first {
						changes++
					}
					if c.Count > 0 && changes >= c.Count {
						return true, nil
					}
				}
				return false, nil
			},
		)
	})
}

// follow looks again and again, and tells each what has changed, until that says that it is done.
func (c *leaseWatch) follow(
	ctx context.Context,
	std *streams,
	watch *operate.Watch,
	each func(seen []operate.Change, first bool) (done bool, err error),
) error {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	silent := false
	for first := true; ; {
		seen, more, err := watch.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // a signal, or --for
		case err != nil && first:
			return err
		case err != nil && !silent:
			std.complain(fmt.Errorf("goes on, but sees nothing now: %w", err))
		case err == nil && silent:
			std.complain(errors.New("sees the servers again"))
		case err == nil && first && more:
			std.complain(fmt.Errorf("there are more than %d leases: raise --limit, or give a --prefix", c.Limit))
		}
		if silent = err != nil; !silent {
			if done, err := each(seen, first); done || err != nil {
				return err
			}
			first = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// print prints a change on one line.
func (c *leaseWatch) print(std *streams, change operate.Change) error {
	if c.JSON {
		return std.printJSON(change)
	}
	what := "now"
	if len(change.Changed) > 0 {
		what = strings.Join(change.Changed, ", ")
	}
	return std.printf("%s  %s  %s  (%s)\n", change.At.Format("2006-01-02T15:04:05.000Z"), shown(change.Resource),
		shown(standingText(change.Lease, change.Fence)), what)
}

// standingText says in a few words where a resource stands.
func standingText(l operate.Lease, f *operate.Fence) string {
	text := string(l.Standing)
	if l.Label != "" {
		text += fmt.Sprintf(" by %q", l.Label)
	}
	if l.PID != 0 {
		text += fmt.Sprintf(", pid %d", l.PID)
	}
	if l.Token != 0 {
		text += fmt.Sprintf(", token %d", l.Token)
	}
	if l.Waiting > 0 {
		text += fmt.Sprintf(", %d waiting", l.Waiting)
	}
	if f != nil {
		text += fmt.Sprintf(", fence %d", f.Token)
	}
	return text
}
