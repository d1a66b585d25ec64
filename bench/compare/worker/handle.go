package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// Handle is a worker's process, as seen by its parent. Its methods are safe for concurrent use, but only one PauseNext
// or AnnounceNext may run at a time.
type Handle struct {
	process *process.Process
	watch   func(Event)
	between chan Event    // room for one
	ready   chan struct{} // closed when it is
	silent  chan struct{} // closed when its output has ended
	stopped bool          // it said so; read after silent
	failure error         // what it failed of, or what of its output was none; read after silent
}

// Options are the settings of a handle.
type Options struct {
	// Command starts a process that calls Run.
	Command []string
	// Watch is called with every event, in order, from one goroutine. It must not call the handle. Default: none.
	Watch func(Event)
}

// Start starts a worker and returns when it is ready. The caller must call Close. ctx bounds the start.
func Start(ctx context.Context, o *Options, c *Config) (*Handle, error) {
	child, err := process.Start(process.Spec{Command: o.Command})
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	h := &Handle{
		process: child, watch: o.Watch,
		between: make(chan Event, 1), ready: make(chan struct{}), silent: make(chan struct{}),
	}
	go h.listen()
	if err = child.Send(c); err == nil {
		err = await(ctx, h, "be ready", h.ready)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// listen reads events until the worker's output ends.
func (h *Handle) listen() {
	defer close(h.silent)
	err := process.Receive(h.process, func(e Event) bool {
		h.take(e)
		return true
	})
	if err != nil && h.failure == nil && !h.stopped {
		h.failure = fmt.Errorf("understand it: %w", err)
	}
}

func (h *Handle) take(e Event) {
	e.At = time.Now()
	switch e.What {
	case IsReady:
		close(h.ready)
	case IsBetween:
		select {
		case h.between <- e:
		default: // nobody waited for the one before it
		}
	case IsStopped:
		h.stopped = true
	case IsFailed:
		h.failure = errors.New(e.Error)
	case IsBegun, IsAttempt, IsEnded:
	}
	if h.watch != nil {
		h.watch(e)
	}
}

// await waits for what a worker was told to do.
func await[T any](ctx context.Context, h *Handle, verb string, c <-chan T) error {
	_, err := receive(ctx, h, verb, c)
	return err
}

func receive[T any](ctx context.Context, h *Handle, verb string, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-h.silent:
		return v, h.end(ctx)
	case <-ctx.Done():
		return v, fmt.Errorf("wait for worker %d to %s: %w", h.PID(), verb, context.Cause(ctx))
	}
}

// end says why a worker has stopped writing.
func (h *Handle) end(ctx context.Context) error {
	if h.failure != nil {
		return fmt.Errorf("worker %d: %w", h.PID(), h.failure)
	}
	select {
	case <-h.process.Done():
		return fmt.Errorf("worker %d ended too early, %s", h.PID(), h.process.How())
	case <-ctx.Done():
		return fmt.Errorf("wait for worker %d to end: %w", h.PID(), context.Cause(ctx))
	}
}

// Begin orders the worker to do operations.
func (h *Handle) Begin() error { return h.process.Send(orderStart) }

// PauseNext orders the worker to stop itself (SIGSTOP) at the next Between. It returns once the process has stopped,
// with the event that the worker wrote before. ctx bounds the wait, and does not withdraw the order.
func (h *Handle) PauseNext(ctx context.Context) (Event, error) {
	e, err := h.next(ctx, orderPause)
	if err != nil {
		return e, err
	}
	return e, await(ctx, h, "stop itself", h.process.Stopped())
}

// Resume continues a stopped process (SIGCONT).
func (h *Handle) Resume() error { return h.process.Resume() }

// AnnounceNext orders the worker to report when it is at the next Between, and to wait there for GoOn. It returns that
// report. ctx bounds the wait, and does not withdraw the order.
func (h *Handle) AnnounceNext(ctx context.Context) (Event, error) { return h.next(ctx, orderAnnounce) }

func (h *Handle) next(ctx context.Context, order string) (Event, error) {
	select {
	case <-h.between: // of an order that nobody waited for any more
	default:
	}
	if err := h.process.Send(order); err != nil {
		return Event{}, err
	}
	return receive(ctx, h, "be between reading and writing", h.between)
}

// GoOn lets the worker continue after AnnounceNext.
func (h *Handle) GoOn() error { return h.process.Send(orderGoOn) }

// StepClock makes the worker's wall clock jump when the worker reads the order: at once, unless it is stopped.
func (h *Handle) StepClock(by time.Duration) error { return h.process.Send(orderClock + by.String()) }

// Stop orders the worker to finish its operation, and returns when the process has ended well. ctx bounds the wait.
func (h *Handle) Stop(ctx context.Context) error {
	if err := h.process.Send(orderStop); err != nil {
		return err
	}
	select {
	case <-h.silent:
	case <-ctx.Done():
		return fmt.Errorf("wait for worker %d to stop: %w", h.PID(), context.Cause(ctx))
	}
	if !h.stopped {
		return h.end(ctx)
	}
	select {
	case <-h.process.Done():
	case <-ctx.Done():
		return fmt.Errorf("wait for worker %d to end: %w", h.PID(), context.Cause(ctx))
	}
	if !h.process.OK() {
		return fmt.Errorf("worker %d ended %s", h.PID(), h.process.How())
	}
	return nil
}

// Close kills the process if it has not ended, stopped or not. It returns when the process is gone and Watch has had
// its last event. Call it once.
// watched. It is called once.
func (h *Handle) Close() error {
	err := h.process.Kill()
	<-h.silent
	if err != nil {
		return fmt.Errorf("end worker %d: %w", h.PID(), err)
	}
	return nil
}

// PID is the process's id.
func (h *Handle) PID() int { return h.process.PID() }
