package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

type fenceCommand struct {
	Ls   fenceLs   `cmd:"" help:"List fences: the highest token claimed for each resource, by whom and when."`
	Show fenceShow `cmd:"" help:"Show one fence."`
	GC   fenceGC   `cmd:"" name:"gc" help:"Delete old fences; their tokens stay refused. With --dry-run: say what grows."`
}

type fenceLs struct {
	databaseFlags
	namespaceFlags
	jsonFlag
	After string `placeholder:"NAME" help:"Begin after this resource."`
	Limit int    `default:"100" help:"How many at most (default: ${default})."`
}

type fenceShow struct {
	databaseFlags
	namespaceFlags
	jsonFlag
	Resource string `arg:"" help:"The resource, without the namespace."`
}

// Validate refuses a list of nothing.
func (c *fenceLs) Validate() error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	return c.databaseFlags.Validate()
}

// Help has an example.
func (*fenceLs) Help() string {
	return `It needs no Redis. Pages are read by name, so a large table is read a page at a time: begin the next page ` +
		`--after the last name.

Example:

  fencepost fence ls --namespace billing --after invoice:2026-11`
}

// Help has an example.
func (*fenceShow) Help() string {
	return `It needs no Redis. Transactions that are open under the fence, or wait to claim, are shown with pid and ` +
		`last statement where rights allow.

Example:

  fencepost fence show invoice:2026-11 --namespace billing`
}

// Run lists fences.
func (c *fenceLs) Run(ctx context.Context, std *streams) error {
	return onDatabase(ctx, c.databaseFlags, c.namespaceFlags, func(site *operate.Site) error {
		fences, more, err := site.Fences(ctx, c.After, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return std.printJSON(struct {
				Fences []operate.Fence `json:"fences"`
				More   bool            `json:"more"`
			}{append([]operate.Fence{}, fences...), more})
		}
		if len(fences) == 0 {
			return std.printf("no fence in the namespace %s\n", c.Namespace)
		}
		rows := [][]string{{"RESOURCE", "TOKEN", "CLAIMED BY", "CLAIMED AT"}}
		for _, f := range fences {
			rows = append(rows, []string{shown(f.Resource), f.Token.String(), shown(f.Label), when(f.ClaimedAt)})
		}
		last := fences[len(fences)-1].Resource
		return errors.Join(std.printTable(rows), std.printMore(more, fmt.Sprintf("--after %q", last)))
	})
}

// Run shows a fence.
func (c *fenceShow) Run(ctx context.Context, std *streams) error {
	return onDatabase(ctx, c.databaseFlags, c.namespaceFlags, func(site *operate.Site) error {
		s, err := site.Look(ctx, c.Resource)
		switch {
		case err != nil:
			return err
		case s.Fence == nil:
			return fmt.Errorf("%q has no fence in the namespace %s: nobody has claimed it, or its fence was collected",
				c.Resource, c.Namespace)
		case c.JSON:
			return std.printJSON(struct {
				Fence *operate.Fence `json:"fence"`
				Open  []operate.Work `json:"open,omitempty"`
			}{s.Fence, s.Open})
		}
		rows := [][]string{
			{"resource", shown(s.Resource)},
			{"fence", fmt.Sprintf("token %d, claimed by %q at %s", s.Fence.Token, s.Fence.Label, when(s.Fence.ClaimedAt))},
		}
		for _, w := range s.Open {
			rows = append(rows, []string{"open", openText(w)})
		}
		return std.printTable(rows)
	})
}
