package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost-pg/fencepost/internal/process"
)

// Handle is a worker's process, as its parent holds it. Its methods are safe for concurrent use, except that there is one
// PauseNext or AnnounceNext at a time.
type Handle struct {
	process *process.Process
	watch   func(Event)
	between chan Event    // room for one
	ready   chan struct{} // closed when it is
	silent  chan struct{} // closed when its output has ended
	stopped bool          // it said so; read after silent
	failure error         // what it failed of, or what of its output was none; read after silent

	writing sync.Mutex
}

// Options are the settings of a handle.
type Options struct {
	// Command starts a process that calls Run.
	Command []string
	// Watch is called with every event, in their order, from one goroutine. It may not call the handle. Default: nobody watches.
	Watch func(Event)
}

// Start starts a worker and returns when it is ready. It must be closed. ctx bounds the start.
func Start(ctx context.Context, o *Options, c *Config) (*Handle, error) {
	child, err := process.Start(o.Command)
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	h := &Handle{
		process: child, watch: o.Watch,
		between: make(chan Event, 1), ready: make(chan struct{}), silent: make(chan struct{}),
	}
	go h.listen()
	config, err := json.Marshal(c)
	if err == nil {
		err = h.write(string(config))
	}
	if err == nil {
		err = await(ctx, h, "be ready", h.ready)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// listen takes in events until the worker's output ends.
func (h *Handle) listen() {
	defer close(h.silent)
	for lines := json.NewDecoder(h.process.Out()); ; {
		var e Event
		if err := lines.Decode(&e); err != nil {
			if h.failure == nil && !h.stopped && !isEnd(err) {
				h.failure = fmt.Errorf("understand it: %w", err)
			}
			return
		}
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
}

// isEnd tells the end of the output, in the middle of a line too, and that of the handle, from lines that are none.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed)
}

// write sends a line. A worker that has ended already cannot read; how it ended is told by whoever waits for it.
func (h *Handle) write(line string) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	if _, err := io.WriteString(h.process.In(), line+"\n"); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("write to worker %d: %w", h.PID(), err)
	}
	return nil
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

// end says why a worker says no more.
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

// Begin orders it to do operations.
func (h *Handle) Begin() error { return h.write(orderStart) }

// PauseNext orders it to stop itself (SIGSTOP) at the next Between, and returns, when it does not run any more, the event that
// it wrote before. ctx bounds the wait, and does not take the order back.
func (h *Handle) PauseNext(ctx context.Context) (Event, error) {
	e, err := h.next(ctx, orderPause)
	if err != nil {
		return e, err
	}
	return e, await(ctx, h, "stop itself", h.process.Stopped())
}

// Resume lets a process that is stopped go on (SIGCONT).
func (h *Handle) Resume() error { return h.process.Resume() }

// AnnounceNext orders it to say when it is at the next Between and to wait there for GoOn, and returns what it said. ctx bounds
// the wait, and does not take the order back.
func (h *Handle) AnnounceNext(ctx context.Context) (Event, error) { return h.next(ctx, orderAnnounce) }

func (h *Handle) next(ctx context.Context, order string) (Event, error) {
	select {
	case <-h.between: // of an order that nobody waited for any more
	default:
	}
	if err := h.write(order); err != nil {
		return Event{}, err
	}
	return receive(ctx, h, "be between reading and writing", h.between)
}

// GoOn lets it go on after AnnounceNext.
func (h *Handle) GoOn() error { return h.write(orderGoOn) }

// StepClock has its wall clock jump. It does so when it reads the order, which it does at once unless it is stopped.
func (h *Handle) StepClock(by time.Duration) error { return h.write(orderClock + by.String()) }

// Stop orders it to finish the operation in hand and returns when its process has ended well. ctx bounds the wait.
func (h *Handle) Stop(ctx context.Context) error {
	if err := h.write(orderStop); err != nil {
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

// Close kills the process if it has not ended, stopped or not, and returns when it is gone and its last event was watched. It is
// called once.
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
