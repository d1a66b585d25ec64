package demo

import "context"

// The writers that a test may give to a play.
const (
	PlainWriter   = string(plain)
	GuardedWriter = string(guarded)
)

// RunWith is Run with other writers.
func RunWith(ctx context.Context, opts *Options, unfenced, fenced string) (*Result, error) {
	return run(ctx, opts, writers{Unfenced: writer(unfenced), Fenced: writer(fenced)})
}

// WorkerEnv marks a process as a worker.
const WorkerEnv = workerEnv
