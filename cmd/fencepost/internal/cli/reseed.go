package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

type reseedCommand struct {
	serverFlags
	jsonFlag
	DryRun bool `help:"Count the counters that are below their fences, and change nothing."`
}

// Help says when it is of use.
func (*reseedCommand) Help() string {
	return `After Redis lost its data, or went back to an older snapshot, each resource's next grant costs one more ` +
		`round trip to each server, which raises its counter. This command raises them all at once. It lowers none, so it ` +
		`may be repeated, and run beside workers. A counter that it creates expires after 30 days without a grant.

Example:

  fencepost reseed --namespace billing --dry-run`
}

// Validate refuses advisory mode, which has no counters.
func (c *reseedCommand) Validate() error {
	if c.Advisory {
		return errors.New("advisory locks have no counters: there is nothing to reseed")
	}
	return c.serverFlags.Validate()
}

// Run raises the counters.
func (c *reseedCommand) Run(ctx context.Context, std *streams) error {
	return c.on(ctx, func(site *operate.Site) error {
		var each func(operate.Reseeded)
		if onTerminal(std.err) {
			each = func(r operate.Reseeded) {
				_, _ = fmt.Fprintf(std.err, "\r%d fences, %d counters below", r.Fences, r.Raised)
			}
		}
		done, err := site.Reseed(ctx, c.DryRun, each)
		if each != nil {
			_, _ = fmt.Fprintln(std.err) // nowhere left to report to
		}
		if c.JSON {
			return errors.Join(err, std.printJSON(struct {
				operate.Reseeded
				DryRun bool   `json:"dry_run,omitempty"`
				Error  string `json:"error,omitempty"`
			}{done, c.DryRun, errorText(err)}))
		}
		what := "raised"
		if c.DryRun {
			what = "below their fences"
		}
		return errors.Join(err, std.printf("%d fences, %d counters %s\n", done.Fences, done.Raised, what))
	})
}
