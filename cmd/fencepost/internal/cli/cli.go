// Package cli is the command fencepost: what it accepts, what it prints, and its exit status.
//
// A command is a struct in a file of its own, with kong's tags and a method
//
//	Run(ctx context.Context, std *streams) error
//
// that is listed once, in commands. Output for scripts goes to standard output, everything else to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
)

// commands is the command line. A new command is one more field.
type commands struct {
	Settings settingsFlag `env:"FENCEPOST_SETTINGS" placeholder:"FILE" help:"A file of settings, lines NAME=VALUE with the names of the environment's variables, which come first."`

	demoCommands
	compareCommands
	completionCommands
	Conformance conformanceCommand `cmd:"" help:"Find out by experiment whether a PostgreSQL and a Redis do what the library rests on."`
	Doctor      doctorCommand      `cmd:"" help:"Is it set up right? Look at both servers, the schema, the tables and this host."`
	Fence       fenceCommand       `cmd:"" help:"List the fences: which token counts for each resource."`
	Grant       grantCommand       `cmd:"" help:"Grant roles what they need: an application's, an operator's, or that of an owner of tables."`
	Lease       leaseCommand       `cmd:"" help:"List the leases, and take one away from its holder."`
	Ledger      ledgerCommand      `cmd:"" help:"List the idempotency keys whose work is done, and delete old ones."`
	Migrate     migrateCommand     `cmd:"" help:"Create, remove or look at fencepost's schema in a database."`
	Protect     protectCommand     `cmd:"" help:"Protect tables: write migrations for it, do it at once, or check that it is so."`
	Reference   referenceCommand   `cmd:"" hidden:"" help:"Print the documents about this program."`
	Reseed      reseedCommand      `cmd:"" help:"Raise the counters in Redis to the fences."`
	Run         runCommand         `cmd:"" help:"Run a program under a lease, as flock or consul lock do."`
	Serve       serveCommand       `cmd:"" help:"Serve a read-only page of the leases and metrics, on this machine's own address."`
	Top         topCommand         `cmd:"" help:"Show the leases as a live page: held, waited for, overtaken, and how they change hands."`
	Version     versionCommand     `cmd:"" help:"Print the version of this program."`
	Why         whyCommand         `cmd:"" help:"Say why a worker with a token is refused: who overtook it, and when."`
}

// Main is Run for a process of its own, whose arguments and streams it takes. It also settles what belongs to a process
// as a whole.
func Main() int {
	servers.QuietRedis()
	return Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Run runs the command that args name and returns the exit status. args do not include the program's own name. Run ends
// early when ctx ends, or on SIGINT or SIGTERM; it then stops at the next point at which nothing is half done. Calls
// must not overlap, because signals belong to the process.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return run(ctx, &commands{}, args, &streams{in: stdin, out: stdout, err: stderr})
}

func run(ctx context.Context, c *commands, args []string, std *streams) int {
	end := std.share()
	defer end()
	selected, err := parse(c, args, std)
	switch {
	case err != nil:
		std.complain(err)
		_, _ = fmt.Fprintln(std.err, `Run "fencepost --help" for usage.`) // nowhere left to report to
		return exitUsage
	case selected == nil: // help was asked for and printed
		return exitOK
	}

	ctx, stop := untilSignal(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	selected.BindTo(ctx, (*context.Context)(nil))
	if err := selected.Run(std); err != nil {
		std.complain(err)
		return statusOf(err)
	}
	return exitOK
}

// parse returns the command that args select, or nil if they ask for help.
func parse(c *commands, args []string, std *streams) (*kong.Context, error) {
	var helped bool
	settings := &settingsFile{}
	parser, err := kong.New(c,
		kong.Name("fencepost"),
		kong.Description(description),
		kong.Writers(std.out, std.err),
		compareNames(),
		kong.Bind(settings),
		kong.Resolvers(settings),
		// kong would exit once it has printed help, but only main may exit.
		kong.Exit(func(int) { helped = true }),
	)
	if err != nil {
		return nil, fmt.Errorf("build the command line: %w", err)
	}
	if path := os.Getenv(settingsVariable); path != "" {
		if err := errors.Join(settings.read(path), settings.check(parser.Model)); err != nil {
			return nil, err
		}
	}
	selected, err := parser.Parse(args)
	if helped {
		return nil, nil
	}
	return selected, err
}

// complain prints an error for the user.
func (s *streams) complain(err error) {
	text := withoutSecrets(err.Error())
	if text == "" {
		return // the status says it all
	}
	if errors.Is(err, context.Canceled) {
		text = "interrupted: " + text
	}
	text = "fencepost: " + strings.TrimPrefix(text, "fencepost: ") // the library's errors begin with it too
	_, _ = fmt.Fprintln(s.err, text)                               // nowhere left to report to
}
