package cli

import (
	"context"

	"github.com/alecthomas/kong"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/reference"
)

// referenceCommand prints the documents about the command line. It is hidden: docs/cli.md and docs/fencepost.1 have
// them, and packages install the latter.
type referenceCommand struct {
	Format string `enum:"markdown,man" default:"markdown" help:"markdown or man."`
}

// generated says where docs/cli.md comes from.
const generated = "`fencepost reference` writes this page from the commands, and a test compares the two. " +
	"`fencepost reference --format man` writes the man page. " +
	"[operating.md](operating.md#the-command) says how the command finds its servers, and what its exit statuses mean."

// Run prints a document.
func (c *referenceCommand) Run(_ context.Context, std *streams, app *kong.Kong) error {
	if c.Format == "man" {
		return std.printf("%s", reference.Man(app.Model))
	}
	return std.printf("%s", reference.Markdown(app.Model, generated))
}
