package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
	"github.com/fencepost-pg/fencepost/fence"
)

type fenceGC struct {
	serverFlags
	jsonFlag
	OlderThan time.Duration `required:"" placeholder:"TIME" help:"Collect fences whose last claim is older, 1h at least."`
	Limit     int           `help:"How many at most (default: no limit)."`
	DryRun    bool          `help:"Count, and say what grows. It changes nothing."`
}

// Validate refuses an age that is too low.
func (c *fenceGC) Validate() error {
	if err := operate.CheckAge(c.OlderThan); err != nil {
		return err
	}
	if c.Limit < 0 {
		return fmt.Errorf("--limit %d is negative", c.Limit)
	}
	return c.serverFlags.Validate()
}

// Help says what is left, and has examples.
func (*fenceGC) Help() string {
	return `It deletes the fences of resources that nobody has claimed for that long, and that nobody holds. Their ` +
		`highest token remains, as the floor of one of 1,024 buckets, so overtaken tokens stay refused. After that the ` +
		`first grant of a resource without a fence costs one more round trip to each server. It works in small ` +
		`transactions and waits for nobody, so it may run beside workers, several times at once, and be ended at any ` +
		`time. The role needs fencepost.grant_collector; for --dry-run, fencepost.grant_operator is enough.

Examples:

  fencepost fence gc --older-than 720h --namespace billing --dry-run
  fencepost fence gc --older-than 720h --namespace billing`
}

// Run collects fences.
func (c *fenceGC) Run(ctx context.Context, std *streams) error {
	return c.on(ctx, func(site *operate.Site) error {
		o := operate.CollectOptions{OlderThan: c.OlderThan, Limit: c.Limit, DryRun: c.DryRun}
		if onTerminal(std.err) {
			o.Each = func(done fence.Collected) {
				_, _ = fmt.Fprintf(std.err, "\r%d old fences, %d collected", done.Old, done.Collected)
			}
		}
		done, err := site.Collect(ctx, o)
		if o.Each != nil {
			_, _ = fmt.Fprintln(std.err) // nowhere left to report to
		}
		var sizes []operate.Size
		if err == nil {
			sizes, err = site.Sizes(ctx)
		}
		return errors.Join(err, c.print(std, done, sizes, err))
	})
}

func (c *fenceGC) print(std *streams, done fence.Collected, sizes []operate.Size, failed error) error {
	if c.JSON {
		return std.printJSON(struct {
			Old       int            `json:"old"`
			Held      int            `json:"held"`
			Left      int            `json:"left"`
			Collected int            `json:"collected"`
			DryRun    bool           `json:"dry_run,omitempty"`
			Tables    []operate.Size `json:"tables"`
			Error     string         `json:"error,omitempty"`
		}{done.Old, done.Held, done.Left, done.Collected, c.DryRun, append([]operate.Size{}, sizes...), errorText(failed)})
	}
	text := fmt.Sprintf("%d fences older than %v: ", done.Old, c.OlderThan)
	if c.DryRun {
		text += fmt.Sprintf("%d held, %d to collect\n", done.Held, done.Old-done.Held)
	} else {
		text += fmt.Sprintf("%d collected, %d held, %d in use\n", done.Collected, done.Held, done.Left)
	}
	if err := std.printf("%s", text); err != nil || !c.DryRun || len(sizes) == 0 {
		return err
	}
	rows := [][]string{{"TABLE", "ROWS", "SIZE"}}
	for _, s := range sizes {
		rows = append(rows, []string{s.Table, rowsText(s.Rows), bytesText(s.Bytes)})
	}
	return std.printTable(rows)
}

func rowsText(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// bytesText rounds a size for people.
func bytesText(n int64) string {
	const unit = 1024
	switch {
	case n < 10*unit*unit:
		return fmt.Sprintf("%d kB", n/unit)
	case n < 10*unit*unit*unit:
		return fmt.Sprintf("%d MB", n/unit/unit)
	}
	return fmt.Sprintf("%d GB", n/unit/unit/unit)
}
