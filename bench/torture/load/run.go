package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/internal/process"
)

// Argument makes this program a worker, if it is its last one.
const Argument = "torture-worker"

// Run is the worker: it reads its config and its orders from in, works, and writes events to out. If in or ctx ends,
// Run ends at once. Run leaves a goroutine behind that reads in, so the process should end.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &worker{start: make(chan struct{}), stop: make(chan struct{})}
	lines := json.NewDecoder(in)
	if err := lines.Decode(&w.config); err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	events := json.NewEncoder(out)
	last := Event{What: Stopped}
	left, err := w.work(ctx, lines, cancel, events)
	if err != nil {
		last = Event{What: Failed, Error: err.Error()}
	}
	last.Left = left
	return events.Encode(last)
}

type worker struct {
	config      Config
	servers     *servers
	start, stop chan struct{} // closed by orders
}

// work opens the mode, waits for the order to start, and does operations until the one to stop. It returns what is then
// left that should be gone.
func (w *worker) work(
	ctx context.Context, lines *json.Decoder, cancel context.CancelCauseFunc, events *json.Encoder,
) (left []string, err error) {
	c := &w.config
	w.servers, err = connect(ctx, c)
	if err != nil {
		return nil, err
	}
	steps, record, err := w.threads(ctx)
	if err != nil {
		w.servers.close()
		return nil, err
	}
	before := runtime.NumGoroutine() + 1 // the reader of orders
	go func() { cancel(process.Orders(lines, w.carryOut(ctx))) }()
	if err := events.Encode(Event{What: Ready}); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	select {
	case <-w.start:
	case <-w.stop:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := w.run(ctx, steps); err != nil {
		return nil, err
	}
	left = w.left(ctx, before)
	w.servers.close()
	return left, record.Close()
}

// threads returns the step of each thread.
func (w *worker) threads(ctx context.Context) ([]func(context.Context) error, *history.Recorder, error) {
	c := &w.config
	record, err := history.NewRecorder(c.File)
	if err != nil {
		return nil, nil, err
	}
	var steps []func(context.Context) error
	if c.Workload == Lease {
		from, err := w.servers.leaser(c.Mode)
		if err != nil {
			return nil, nil, err
		}
		for i := range c.Threads {
			t := newThread(c, nil, record, i)
			steps = append(steps, func(ctx context.Context) error { return t.leaseStep(ctx, from) })
		}
		return steps, record, nil
	}
	m, err := open(ctx, w.servers, c)
	if err != nil {
		return nil, nil, err
	}
	for i := range c.Threads {
		steps = append(steps, newThread(c, m, record, i).step)
	}
	return steps, record, nil
}

// run does operations until the order to stop.
func (w *worker) run(ctx context.Context, steps []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, step := range steps {
		all.Go(func() {
			for ctx.Err() == nil && !w.stopped() {
				if err := step(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// carryOut returns what takes orders.
func (w *worker) carryOut(ctx context.Context) func(Order) error {
	return func(o Order) error {
		switch o.What {
		case Start:
			close(w.start)
		case Stop:
			close(w.stop)
		case Starve:
			go w.servers.starve(ctx, o.For)
		case Jump:
			w.servers.ahead.Add(int64(o.For))
		default:
			return fmt.Errorf("there is no order %q", o.What)
		}
		return nil
	}
}

// settling is how long what runs in the background may take to end: a subscription that lingers, a session of advisory
// locks.
const settling = 15 * time.Second

// left returns what has not been given back when all operations have ended.
func (w *worker) left(ctx context.Context, before int) []string {
	var left []string
	for until := history.Now() + settling; ; {
		left = nil
		if n := w.servers.pool.Stat().AcquiredConns(); n > 0 {
			left = append(left, fmt.Sprintf("%d connections in use", n))
		}
		// The pool and the clients have goroutines of their own, a few for each connection.
		if n := runtime.NumGoroutine(); n > before+allowed {
			left = append(left, fmt.Sprintf("%d goroutines, %d at the start", n, before))
		}
		if len(left) == 0 || history.Now() > until || wait.For(ctx, settling/100) != nil {
			return left
		}
	}
}

// allowed is how many goroutines the pool and the Redis clients may have more than at the start.
const allowed = 8
