package mode

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/wait"
)

// How long Persist waits before the next attempt: half to one and a half times that.
const (
	afterRefusal = 2 * time.Millisecond
	afterFailure = 40 * time.Millisecond
)

// Persist does what users do. It makes attempts at an operation, each with a time limit of its own, until one is
// accepted, one is broken, or ctx ends. It returns the outcome of the last attempt. Watch, if not nil, is called for
// each attempt that was not accepted.
func Persist(
	ctx context.Context,
	m Mode,
	op *work.Operation,
	attempt time.Duration,
	watch func(Outcome, error),
) (Outcome, error) {
	for {
		err := try(ctx, m, op, attempt)
		outcome := OutcomeOf(err)
		if watch != nil && outcome != Accepted {
			watch(outcome, err)
		}
		if outcome == Accepted || outcome == Broken {
			return outcome, err
		}
		pause := afterFailure
		if outcome == Refused {
			pause = afterRefusal
		}
		if wait.For(ctx, pause/2+rand.N(pause)) != nil {
			return outcome, err
		}
	}
}

func try(ctx context.Context, m Mode, op *work.Operation, attempt time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return m.Run(ctx, op)
}
