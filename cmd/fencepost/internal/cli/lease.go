package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
	"github.com/fencepost-pg/fencepost/lease"
)

type leaseCommand struct {
	Ls       leaseLs       `cmd:"" help:"List the leases that are held, with their fences."`
	Show     leaseShow     `cmd:"" help:"Show a lease, its fence and the transactions that are open under it."`
	Release  leaseRelease  `cmd:"" help:"Take a lease away from a holder that was overtaken, or with --force from any."`
	Watch    leaseWatch    `cmd:"" help:"Follow leases: one line per change of holder, token, queue or fence."`
	Handover leaseHandover `cmd:"" help:"Take a lease away from its holder and give it to the first that waits for it."`
}

type leaseLs struct {
	serverFlags
	jsonFlag
	Limit int `default:"100" help:"How many at most (default: ${default})."`
}

type leaseShow struct {
	serverFlags
	jsonFlag
	Resource string `arg:"" help:"The resource, without the namespace."`
}

type freeFlags struct {
	serverFlags
	jsonFlag
	Resource string        `arg:"" help:"The resource, without the namespace."`
	Wait     time.Duration `default:"5s" help:"How long to wait for transactions that are open under the lease (default: ${default})."`
	Reason   string        `placeholder:"TEXT" help:"Is recorded at the fence, for others to read. Default: who ran this command."`
}

type leaseRelease struct {
	freeFlags
	Force bool `help:"Also if nobody has overtaken the holder: what it still writes is refused."`
}

type leaseHandover struct {
	freeFlags
}

// Validate refuses a list of nothing.
func (c *leaseLs) Validate() error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	return c.serverFlags.Validate()
}

func checkLimit(limit int) error {
	if limit < 1 || limit > 100_000 {
		return errors.New("--limit is 1 to 100000")
	}
	return nil
}

// Help says what is shown.
func (*leaseLs) Help() string {
	return `It puts side by side what Redis says (holder, token, time left, waiters) and what PostgreSQL says (the ` +
		`fence). A holder whose token is below the fence has been overtaken. Redis is read by SCAN, a part at a time, and ` +
		`needs the right to it.

Example:

  fencepost lease ls --namespace billing`
}

// Help says in which order things are done.
func (*leaseRelease) Help() string {
	return `The fence is raised first, so that the holder can no longer write, and then the lease is freed, for the ` +
		`first waiter if there is one. If transactions are open under the lease for longer than --wait, nothing is done ` +
		`(status 75). Without --force only a lease whose holder was overtaken is freed; otherwise the status is 77. The ` +
		`holder's program learns of it with its next write or renewal.

Example:

  fencepost lease release invoice:2026-11 --force --reason 'ticket 17: host-a hangs'`
}

// Help says how it differs from release.
func (*leaseHandover) Help() string {
	return `As release --force, but nothing is done (status 77) if nobody waits for the lease.

Example:

  fencepost lease handover invoice:2026-11`
}

// Help has an example.
func (*leaseShow) Help() string {
	return `Example:

  fencepost lease show invoice:2026-11 --namespace billing`
}

// Run lists leases.
func (c *leaseLs) Run(ctx context.Context, std *streams) error {
	return c.on(ctx, func(site *operate.Site) error {
		sights, more, err := site.Leases(ctx, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return std.printJSON(struct {
				Leases []operate.Sight `json:"leases"`
				More   bool            `json:"more"`
			}{append([]operate.Sight{}, sights...), more})
		}
		if len(sights) == 0 {
			return std.printf("nobody holds a lease in the namespace %s\n", c.Namespace)
		}
		rows := [][]string{{"RESOURCE", "HOLDER", "TOKEN", "LEFT", "WAITING", "FENCE", "CLAIMED BY", "CLAIMED AT", ""}}
		for _, s := range sights {
			rows = append(rows, leaseRow(s))
		}
		return errors.Join(std.printTable(rows), std.printMore(more, "raise --limit"))
	})
}

func leaseRow(s operate.Sight) []string {
	l := s.Lease
	row := []string{
		shown(s.Resource), shown(l.Label), l.Token.String(), short(l.Left()),
		fmt.Sprint(l.Waiting), "-", "-", "-", "",
	}
	if l.Token == 0 {
		row[2], row[3] = "-", "-"
	}
	if s.Fence != nil {
		row[5], row[6], row[7] = s.Fence.Token.String(), shown(s.Fence.Label), when(s.Fence.ClaimedAt)
	}
	switch {
	case l.Standing != lease.Held:
		row[8] = string(l.Standing)
	case l.Token != 0 && s.Fence != nil && s.Fence.Token > l.Token:
		row[8] = "overtaken"
	}
	return row
}

// Run shows a lease.
func (c *leaseShow) Run(ctx context.Context, std *streams) error {
	return c.on(ctx, func(site *operate.Site) error {
		s, err := site.Look(ctx, c.Resource)
		if err != nil {
			return err
		}
		if c.JSON {
			return std.printJSON(s)
		}
		return std.printSight(s)
	})
}

// printSight prints what both servers say.
func (s *streams) printSight(v *operate.Sight) error {
	l := v.Lease
	text := string(l.Standing)
	if l.Label != "" {
		text += fmt.Sprintf(" by %q", l.Label)
	}
	if l.Token != 0 {
		text += fmt.Sprintf(", token %d", l.Token)
	}
	if l.LeftMS != 0 {
		text += fmt.Sprintf(", for another %s", short(l.Left()))
	}
	if l.PID != 0 {
		text += fmt.Sprintf(", pid %d", l.PID)
	}
	rows := [][]string{{"resource", shown(v.Resource)}, {"lease", text}, {"waiting", fmt.Sprint(l.Waiting)}}
	if v.Fence == nil {
		rows = append(rows, []string{"fence", "none: nobody has claimed it, or its fence was collected"})
	} else {
		rows = append(rows, []string{"fence", fmt.Sprintf("token %d, claimed by %q at %s", v.Fence.Token, v.Fence.Label,
			when(v.Fence.ClaimedAt))})
	}
	for _, w := range v.Open {
		rows = append(rows, []string{"open", openText(w)})
	}
	return s.printTable(rows)
}

func openText(w operate.Work) string {
	text := fmt.Sprintf("pid %d %s", w.PID, w.Does)
	if w.Since != nil {
		text += " since " + when(*w.Since)
	}
	return text + fmt.Sprintf(" (%s, %s, %s): %s", shown(w.Application), shown(w.User), shown(w.State), shown(w.Query))
}

// Run frees a lease.
func (c *leaseRelease) Run(ctx context.Context, std *streams) error {
	return c.free(ctx, std, &operate.FreeOptions{Force: c.Force})
}

// Run hands a lease on.
func (c *leaseHandover) Run(ctx context.Context, std *streams) error {
	return c.free(ctx, std, &operate.FreeOptions{Handover: true})
}

func (f *freeFlags) free(ctx context.Context, std *streams, o *operate.FreeOptions) error {
	o.Wait, o.Label = f.Wait, f.Reason
	if o.Label == "" {
		host, _ := os.Hostname() // a label for people; an empty host name will do
		o.Label = fmt.Sprintf("operator %s@%s", os.Getenv("USER"), host)
	}
	return f.on(ctx, func(site *operate.Site) error {
		freed, err := site.Free(ctx, f.Resource, o)
		if f.JSON {
			return errors.Join(err, std.printJSON(struct {
				*operate.Freed
				Error string `json:"error,omitempty"`
			}{freed, errorText(err)}))
		}
		for _, text := range freed.Done {
			err = errors.Join(err, std.printf("%s\n", shown(text)))
		}
		return err
	})
}
