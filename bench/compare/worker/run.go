package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/internal/process"
)

// Run is the worker: it reads its config and its orders from in, works, and writes events to out. If in or ctx ends,
// Run ends at once. The error says that an event could not be written; other errors are events.
//
// Run leaves a goroutine behind that reads in, so the process should end.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &worker{events: json.NewEncoder(out), broke: cancel, start: make(chan struct{}), stop: make(chan struct{})}
	w.gate.goOn = make(chan struct{}, 1)
	lines := json.NewDecoder(in)
	if err := lines.Decode(&w.config); err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	go func() { cancel(process.Orders(lines, w.carryOut())) }()
	if err := w.work(ctx); err != nil {
		w.report(Event{What: IsFailed, Error: err.Error()})
	}
	return w.unwritten()
}

type worker struct {
	config Config
	mode   mode.Mode
	clock  clock
	gate   gate
	start  chan struct{} // closed by the order
	stop   chan struct{} // closed by the order

	mu     sync.Mutex
	events *json.Encoder
	silent error // why an event could not be written
	broke  context.CancelCauseFunc
}

// report writes an event. If it cannot, the parent is gone, and the work ends.
func (w *worker) report(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent != nil {
		return
	}
	if err := w.events.Encode(e); err != nil {
		w.silent = fmt.Errorf("report: %w", err)
		w.broke(w.silent)
	}
}

func (w *worker) unwritten() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

// work opens the mode, waits for the order to start, and does operations until the one to stop.
func (w *worker) work(ctx context.Context) (err error) {
	c := w.config.withDefaults()
	w.mode, err = mode.Open(ctx, c.Mode, mode.Config{
		PostgresURL: c.PostgresURL, RedisURLs: c.RedisURLs, TTL: c.TTL, Namespace: c.Namespace,
		Label: fmt.Sprintf("worker %d", c.Worker), Clock: w.clock.now, Unguarded: c.Unguarded, Unwatched: c.Unwatched,
	})
	if err != nil {
		return err
	}
	defer w.mode.Close()
	w.report(Event{What: IsReady})
	select {
	case <-w.start:
	case <-w.stop:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	inTime, cancel := w.graceful(ctx, c.Grace)
	defer cancel()
	next := work.Plan{Workload: c.Workload, Keyed: c.Keyed, Seed: c.Seed, Worker: c.Worker}.Operations()
	for !w.stopped() && ctx.Err() == nil {
		if err := w.do(inTime, next(), c.Attempt); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.report(Event{What: IsStopped})
	return nil
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// graceful returns a context that ends with ctx, and also some time after the order to stop.
func (w *worker) graceful(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-w.stop:
		case <-ctx.Done():
			return
		}
		patience := time.NewTimer(grace)
		defer patience.Stop()
		select {
		case <-patience.C:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// do does one operation, however many attempts it takes.
func (w *worker) do(ctx context.Context, op *work.Operation, attempt time.Duration) error {
	op.Between = func(context.Context) error { return w.between(ctx, op.ID) }
	w.report(Event{What: IsBegun, ID: op.ID, Rows: op.Rows})
	doubt := false
	outcome, err := mode.Persist(ctx, w.mode, op, attempt, func(o mode.Outcome, err error) {
		doubt = doubt || o == mode.Unknown
		w.report(Event{What: IsAttempt, ID: op.ID, Outcome: o, Error: err.Error(), ByPostgres: mode.RefusedByPostgres(err)})
	})
	ended := Event{What: IsEnded, ID: op.ID, Rows: op.Rows, Outcome: outcome, Doubt: doubt}
	if err != nil {
		ended.Error = err.Error()
	}
	w.report(ended)
	if outcome == mode.Broken {
		return err
	}
	return nil
}
