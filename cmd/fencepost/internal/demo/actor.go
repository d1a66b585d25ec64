package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// actor is a worker, as seen by the director.
type actor struct {
	name     string
	process  *process.Process
	patience time.Duration
	reports  chan report   // closed after the last report
	garbled  error         // why reports ended, if not by the process's end; read after reports is closed
	left     chan struct{} // closed when nobody reads the reports
}

// enter starts a worker and hands it its script. The caller must call leave.
func enter(command []string, s script, patience time.Duration) (*actor, error) {
	child, err := process.Start(process.Spec{Command: command, Env: []string{workerEnv + "=1"}})
	if err != nil {
		return nil, fmt.Errorf("start worker %s: %w", s.Name, err)
	}
	a := &actor{
		name: s.Name, process: child, patience: patience,
		reports: make(chan report), left: make(chan struct{}),
	}
	go a.listen()
	if err := child.Send(s); err != nil {
		return nil, errors.Join(fmt.Errorf("hand worker %s its script: %w", s.Name, err), a.leave())
	}
	return a, nil
}

// leave kills the worker if it still runs, and returns when it is gone.
func (a *actor) leave() error {
	close(a.left)
	err := a.process.Kill()
	for range a.reports { // until listen has ended
	}
	if err != nil {
		return fmt.Errorf("end worker %s: %w", a.name, err)
	}
	return nil
}

func (a *actor) listen() {
	defer close(a.reports)
	a.garbled = process.Receive(a.process, func(r report) bool {
		select {
		case a.reports <- r:
			return true
		case <-a.left:
			return false
		}
	})
}

// next returns the worker's next report, which must be one of those wanted.
func (a *actor) next(ctx context.Context, wanted ...what) (report, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, a.patience, fmt.Errorf("nothing for %v", a.patience))
	defer cancel()
	select {
	case r, ok := <-a.reports:
		switch {
		case !ok:
			return report{}, a.silence(ctx)
		case r.What == isFailed:
			return report{}, fmt.Errorf("worker %s gave up: %s", a.name, r.Error)
		case !slices.Contains(wanted, r.What):
			return report{}, fmt.Errorf("worker %s reports %q, and %q was due", a.name, r.What, wanted)
		}
		return r, nil
	case <-bounded.Done():
		return report{}, fmt.Errorf("wait for worker %s to report %q: %w", a.name, wanted, context.Cause(bounded))
	}
}

// silence says why a worker has stopped reporting.
func (a *actor) silence(ctx context.Context) error {
	if a.garbled != nil {
		return fmt.Errorf("understand worker %s: %w", a.name, a.garbled)
	}
	if err := a.awaitEnd(ctx); err != nil {
		return err
	}
	return fmt.Errorf("worker %s ended too early, %s", a.name, a.process.How())
}

// awaitEnd waits for the worker's process to end by itself.
func (a *actor) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.patience, fmt.Errorf("still running after %v", a.patience))
	defer cancel()
	select {
	case <-a.process.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for worker %s to end: %w", a.name, context.Cause(ctx))
	}
}

// exit waits for the worker's process to end without an error.
func (a *actor) exit(ctx context.Context) error {
	if err := a.awaitEnd(ctx); err != nil {
		return err
	}
	if !a.process.OK() {
		return fmt.Errorf("worker %s ended %s", a.name, a.process.How())
	}
	return nil
}
