package cell

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/internal/process"
)

// patience bounds what a worker or a server must do soon, on a slow machine.
const patience = 60 * time.Second

// worker is a place for worker processes: one lives, and those before it were killed. One goroutine uses it.
type worker struct {
	command []string
	config  load.Config
	folder  string
	files   []string // of all lives

	now *life
}

// life is one process.
type life struct {
	process *process.Process
	ready   chan struct{}
	silent  chan struct{} // closed when its output has ended

	mu   sync.Mutex
	last load.Event // the last that it said
}

// begin starts the next process, and returns when it does operations.
func (w *worker) begin(ctx context.Context) error {
	w.config.File = filepath.Join(w.folder, fmt.Sprintf("worker-%d.%d.jsonl", w.config.Worker, w.config.Life))
	child, err := process.Start(process.Spec{Command: w.command})
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	l := &life{process: child, ready: make(chan struct{}), silent: make(chan struct{})}
	w.now = l
	w.files = append(w.files, w.config.File)
	go l.listen()
	if err := child.Send(w.config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-l.ready:
		return child.Send(load.Order{What: load.Start})
	case <-l.silent:
		return fmt.Errorf("worker %d: %w", w.config.Worker, l.failure())
	case <-ctx.Done():
		return fmt.Errorf("wait for worker %d: %w", w.config.Worker, ctx.Err())
	}
}

func (l *life) listen() {
	defer close(l.silent)
	// An end in the middle of a line is that of a process that was killed.
	_ = process.Receive(l.process, func(e load.Event) bool {
		if e.What == load.Ready {
			close(l.ready)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last = e
		return true
	})
}

func (l *life) said() load.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *life) failure() error {
	if e := l.said(); e.What == load.Failed {
		return errors.New(e.Error)
	}
	return errors.New("it ended without a word")
}

// Stop stops the process, as nemesis.Worker says. The others do what they say there too.
func (w *worker) Stop(ctx context.Context) error { return w.now.process.Stop(ctx) }

func (w *worker) Resume() error { return w.now.process.Resume() }

// Replace also finds out that the process had failed before.
func (w *worker) Replace(ctx context.Context) error {
	select {
	case <-w.now.silent:
		return fmt.Errorf("worker %d: %w", w.config.Worker, w.now.failure())
	default:
	}
	if err := w.kill(); err != nil {
		return err
	}
	w.config.Life++
	return w.begin(ctx)
}

func (w *worker) Starve(d time.Duration) error {
	return w.now.process.Send(load.Order{What: load.Starve, For: d})
}

func (w *worker) Jump(by time.Duration) error {
	return w.now.process.Send(load.Order{What: load.Jump, For: by})
}

// end orders the process to finish what it does, and returns what it has left.
func (w *worker) end(ctx context.Context) ([]string, error) {
	if err := w.now.process.Send(load.Order{What: load.Stop}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-w.now.silent:
	case <-ctx.Done():
		return []string{fmt.Sprintf("worker %d, which does not end", w.config.Worker)}, nil
	}
	e := w.now.said()
	if e.What != load.Stopped {
		return nil, fmt.Errorf("worker %d: %w", w.config.Worker, w.now.failure())
	}
	var left []string
	for _, what := range e.Left {
		left = append(left, fmt.Sprintf("worker %d: %s", w.config.Worker, what))
	}
	return left, nil
}

// kill ends the process, if there is one.
func (w *worker) kill() error {
	if w.now == nil {
		return nil
	}
	err := w.now.process.Kill()
	<-w.now.silent
	w.now = nil
	if err != nil {
		return fmt.Errorf("end worker %d: %w", w.config.Worker, err)
	}
	return nil
}
