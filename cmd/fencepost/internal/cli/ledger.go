package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

type ledgerCommand struct {
	Ls    ledgerLs    `cmd:"" help:"List idempotency keys whose work is done, the latest first."`
	Show  ledgerShow  `cmd:"" help:"Say when the work of a key was done. Status 1: it was not."`
	Purge ledgerPurge `cmd:"" help:"Delete old keys of the namespace."`
}

type ledgerLs struct {
	databaseFlags
	namespaceFlags
	jsonFlag
	Before time.Time `placeholder:"TIME" help:"Only keys done before this time (2026-11-30T02:00:00Z)."`
	After  string    `placeholder:"KEY" help:"With --before: also the keys done at that very time that come after this one by name."`
	Limit  int       `default:"100" help:"How many at most (default: ${default})."`
}

type ledgerShow struct {
	databaseFlags
	namespaceFlags
	jsonFlag
	Key string `arg:"" help:"The idempotency key, as given to Once, DoOnce or run --once."`
}

type ledgerPurge struct {
	databaseFlags
	namespaceFlags
	jsonFlag
	Age time.Duration `required:"" placeholder:"TIME" help:"Delete keys whose work was done longer ago, 24h at least. A retry after that does the work again."`
}

// Validate refuses a list of nothing.
func (c *ledgerLs) Validate() error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	if c.After != "" && c.Before.IsZero() {
		return errors.New("--after goes with --before: together they name the last key of a page")
	}
	return c.databaseFlags.Validate()
}

// Help has an example.
func (*ledgerLs) Help() string {
	return `It needs no Redis. Pages are read by time: begin the next page --before the last time and --after the ` +
		`last key, as the end of a page says.

Examples:

  fencepost ledger ls --namespace billing --limit 10
  fencepost ledger ls --before 2026-12-01T00:00:00Z`
}

// Validate refuses to forget keys that may be tried again.
func (c *ledgerPurge) Validate() error {
	if c.Age < fencepost.OnceWindow {
		return errors.New("--age is 24h or more, because a retry would do the work again")
	}
	return c.databaseFlags.Validate()
}

// Help has an example.
func (*ledgerShow) Help() string {
	return `Example, after fencepost run --once invoices-2026-11:

  fencepost ledger show invoices-2026-11`
}

// Help has an example.
func (*ledgerPurge) Help() string {
	return `It deletes 10,000 at a time and may run beside workers, and several times at once.

Example:

  fencepost ledger purge --age 720h --namespace billing`
}

// Run lists keys.
func (c *ledgerLs) Run(ctx context.Context, std *streams) error {
	before := c.Before
	if before.IsZero() {
		before = time.Now().Add(24 * time.Hour) // the server's clock may be ahead
	}
	return onDatabase(ctx, c.databaseFlags, c.namespaceFlags, func(site *operate.Site) error {
		keys, more, err := site.Keys(ctx, before, c.After, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return std.printJSON(struct {
				Keys []operate.Key `json:"keys"`
				More bool          `json:"more"`
			}{append([]operate.Key{}, keys...), more})
		}
		if len(keys) == 0 {
			return std.printf("no key in the namespace %s\n", c.Namespace)
		}
		rows := [][]string{{"KEY", "RESOURCE", "DONE AT"}}
		for _, k := range keys {
			rows = append(rows, []string{shown(k.Key), shown(k.Resource), when(k.DoneAt)})
		}
		last := keys[len(keys)-1]
		next := fmt.Sprintf("--before %s --after %q", last.DoneAt.Format(time.RFC3339Nano), last.Key)
		return errors.Join(std.printTable(rows), std.printMore(more, next))
	})
}

// Run shows a key.
func (c *ledgerShow) Run(ctx context.Context, std *streams) error {
	return onDatabase(ctx, c.databaseFlags, c.namespaceFlags, func(site *operate.Site) error {
		key, err := site.Key(ctx, c.Key)
		switch {
		case err != nil:
			return err
		case key == nil:
			return fmt.Errorf("the ledger of the namespace %s does not have the key %q: "+
				"its work was not recorded, or the key was purged",
				c.Namespace, c.Key)
		case c.JSON:
			return std.printJSON(key)
		}
		return std.printf("the work of %q was done under %q at %s\n", key.Key, key.Resource, when(key.DoneAt))
	})
}

// Run deletes old keys.
func (c *ledgerPurge) Run(ctx context.Context, std *streams) error {
	return onDatabase(ctx, c.databaseFlags, c.namespaceFlags, func(site *operate.Site) error {
		purged, err := site.Purge(ctx, c.Age)
		if c.JSON {
			return errors.Join(err, std.printJSON(struct {
				Purged int64  `json:"purged"`
				Error  string `json:"error,omitempty"`
			}{purged, errorText(err)}))
		}
		return errors.Join(err, std.printf("purged %d\n", purged))
	})
}
