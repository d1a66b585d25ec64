package cli

import (
	"context"
	"errors"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
	"github.com/fencepost-pg/fencepost/token"
)

type whyCommand struct {
	serverFlags
	jsonFlag
	Resource string `arg:"" help:"The resource, without the namespace."`
	Token    string `placeholder:"NUMBER" help:"The token of the worker, as its error says it. Without it: that of the lease."`
}

// Help has an example.
func (*whyCommand) Help() string {
	return `Says in sentences why a worker with this token is refused: who overtook it, and when; or that it is not.

Example, for the error "stale token: \"billing:invoice:2026-11\": token 7, fence at 9":

  fencepost why invoice:2026-11 --token 7 --namespace billing`
}

// Validate refuses text that is not a token.
func (c *whyCommand) Validate() error {
	if c.Token != "" {
		if _, err := token.Parse(c.Token); err != nil {
			return errors.New("--token is not a token: a number from 1 on")
		}
	}
	return c.serverFlags.Validate()
}

// Run says why.
func (c *whyCommand) Run(ctx context.Context, std *streams) error {
	var tok token.Token
	if c.Token != "" {
		var err error
		if tok, err = token.Parse(c.Token); err != nil {
			return err
		}
	}
	return c.on(ctx, func(site *operate.Site) error {
		reason, err := site.Why(ctx, c.Resource, tok)
		if err != nil {
			return err
		}
		if c.JSON {
			return std.printJSON(reason)
		}
		for _, text := range reason.Says {
			err = errors.Join(err, std.printf("%s\n", shown(text)))
		}
		return err
	})
}
