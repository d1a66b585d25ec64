package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/child"
)

type runCommand struct {
	serverFlags
	Resource string         `required:"" short:"r" placeholder:"NAME" help:"The resource whose lease the program needs."`
	TTL      time.Duration  `name:"ttl" default:"30s" help:"How long the lease lasts if this command dies (default: ${default})."`
	Wait     *time.Duration `placeholder:"TIME" help:"How long to wait for another holder; 0s: not at all. Without it: as long as it takes."`
	MaxHold  time.Duration  `placeholder:"TIME" help:"End the lease, and with it the program, after this time."`
	Once     string         `placeholder:"KEY" help:"Do not run if the ledger has this key; enter it once the program has ended with status 0."`
	Grace    time.Duration  `default:"10s" help:"How long the program has between SIGTERM and SIGKILL if the lease is lost (default: ${default})."`
	Label    string         `env:"FENCEPOST_LABEL" placeholder:"TEXT" help:"Names the holder to others. Default: host name and process id."`
	Verbose  bool           `short:"v" help:"Say on standard error what happens."`
	Command  []string       `arg:"" passthrough:"" placeholder:"COMMAND" help:"The program and its arguments."`
}

// Help says what the program gets, and what is promised.
func (*runCommand) Help() string {
	return `The program gets FENCEPOST_RESOURCE, FENCEPOST_NAMESPACE and FENCEPOST_TOKEN, and in FENCEPOST_CLAIM_FD the ` +
		`number of a file descriptor from which the claim can be read as JSON: {"resource","token","nonce"}, for ` +
		`fencepost.enter. It runs in a process group of its own. SIGTERM, SIGINT and SIGHUP are passed on to the group. If ` +
		`the lease is lost, the group gets SIGTERM, and after the grace time SIGKILL. The exit status is the program's.

Examples:

  fencepost run --resource nightly -- ./nightly.sh
  fencepost run --resource nightly --wait 0s -- ./nightly.sh        # like flock -n: status 75 if it runs elsewhere
  fencepost run --resource invoices --once invoices-2026-11 -- ./invoices.sh    # on two hosts: one run`
}

// Validate refuses a command that could not run.
func (c *runCommand) Validate() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New("there is no program to run: fencepost run --resource NAME -- COMMAND")
	}
	if c.Grace < 0 {
		return errors.New("--grace is negative")
	}
	return c.serverFlags.Validate()
}

// Run runs the program under the lease.
func (c *runCommand) Run(ctx context.Context, std *streams) (err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	s, err := c.open(ctx)
	if err != nil {
		return interruptedBy(ctx, err)
	}
	defer func() { err = errors.Join(err, s.close()) }()
	store, err := s.store(std, fencepost.Options{TTL: c.TTL, Label: c.Label})
	if err != nil {
		return err
	}
	u := &underLease{runCommand: c, site: s, store: store, std: std, signals: signals}
	if done, err := u.recorded(ctx); done || err != nil {
		return interruptedBy(ctx, err)
	}
	lease, err := u.acquire(ctx)
	if err != nil {
		return interruptedBy(ctx, err)
	}
	err = u.work(ctx, lease)
	return u.end(err, lease.Release(ctx))
}

// end returns how the run ended, after its lease has been released or could not be. A program that ended well, but not
// under the lease, has failed. If its key was entered, PostgreSQL has said that the lease was good until then, and what
// became of it afterwards changes nothing.
func (u *underLease) end(err, released error) error {
	switch {
	case released == nil:
	case errors.Is(released, fencepost.ErrLost) && err == nil && !u.entered:
		return released
	case !errors.Is(released, fencepost.ErrLost):
		u.std.complain(fmt.Errorf("the lease ends with its TTL: %w", released))
	}
	return err
}

// underLease is one run of a program under a lease.
type underLease struct {
	*runCommand
	site    *site
	store   *fencepost.Store
	std     *streams
	signals chan os.Signal
	entered bool // the key, by this run or by another one
}

// acquire waits for the lease for as long as the flags say.
func (u *underLease) acquire(ctx context.Context) (*fencepost.Lease, error) {
	o := &fencepost.AcquireOptions{MaxHold: u.MaxHold}
	if u.Wait == nil {
		return u.store.Acquire(ctx, u.Resource, o)
	}
	wait := *u.Wait
	if o.ClaimWait = wait; wait == 0 {
		o.NoWait, o.ClaimWait, wait = true, time.Second, connectWithin // the servers still have to answer
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return u.store.Acquire(ctx, u.Resource, o)
}

// work runs the program and enters the key.
func (u *underLease) work(ctx context.Context, lease *fencepost.Lease) error {
	if done, err := u.recorded(ctx); done || err != nil {
		return err // another run has ended while this one waited
	}
	if err := ctx.Err(); err != nil {
		return interruptedBy(ctx, err)
	}
	if lost := lease.Err(); lost != nil {
		return fmt.Errorf("the program was not run: %w", lost)
	}
	claim, err := json.Marshal(lease.Claim())
	if err != nil {
		return err
	}
	u.say("runs under token %d", lease.Token())
	signal.Notify(u.signals, syscall.SIGHUP)
	began := time.Now()
	status, err := child.Run(&child.Spec{
		Command: u.Command, Secret: append(claim, '\n'), In: u.std.in, Out: u.std.out, Err: u.std.err,
		Env: []string{
			"FENCEPOST_RESOURCE=" + u.Resource, "FENCEPOST_NAMESPACE=" + u.Namespace,
			"FENCEPOST_TOKEN=" + lease.Token().String(), fmt.Sprintf("FENCEPOST_CLAIM_FD=%d", child.Descriptor),
		},
		Stop: lease.Done(), Signals: u.signals, Grace: u.Grace,
	})
	if lost := lease.Err(); lost != nil {
		return fmt.Errorf("the program was ended, with status %d: %w", status, lost)
	}
	if err != nil || status != 0 {
		return &statusError{status, err}
	}
	return u.record(ctx, lease, began)
}

// say tells on standard error what happens, if it was asked for.
func (u *underLease) say(format string, args ...any) {
	if u.Verbose {
		_, _ = fmt.Fprintf(u.std.err, "fencepost: %q "+format+"\n", append([]any{u.Resource}, args...)...)
	}
}
