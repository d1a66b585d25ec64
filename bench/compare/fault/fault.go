package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// ErrMissed says that a fault did not strike as meant. The text of the error says how that was noticed.
var ErrMissed = errors.New("the fault missed")

// Fault is one thing that goes wrong.
type Fault struct {
	Name string
	// Redis reports whether the fault happens to Redis, or on the way there. It does not touch a mode without Redis.
	Redis bool
	// Holds reports whether no lease may run out by itself. The cell's TTL is then so long that even a busy machine
	// does not reach it. Otherwise nobody could tell whether the fault or the TTL did the harm.
	Holds bool
	// Pair reports whether a mode with one Redis server needs one with a replica.
	Pair bool
	// Clock reports whether the fault happens to a wall clock. It does not touch a mode that reads none.
	Clock bool

	prepare, strike func(context.Context, *Scene) error
}

// All returns all faults, in the order of reports; the first is none.
func All() []Fault {
	return []Fault{
		{Name: report.FaultNone, Holds: true},
		{Name: report.FaultPause, strike: pause},
		{Name: report.FaultRedisRestartEmpty, Redis: true, Holds: true, strike: restartEmpty},
		{Name: report.FaultRedisFailover, Redis: true, Holds: true, Pair: true, prepare: holdBack, strike: failOver},
		{Name: report.FaultCutRedis, Redis: true, strike: cutRedis},
		{Name: report.FaultCutPostgres, strike: cutPostgres},
		{Name: report.FaultCommitReplyLost, Holds: true, strike: loseCommitReply},
		{Name: report.FaultBackendKilled, strike: killBackends},
		{Name: report.FaultClockJump, Clock: true, strike: jumpClock},
	}
}

// Find returns the fault with a name.
func Find(name string) (Fault, error) {
	for _, f := range All() {
		if f.Name == name {
			return f, nil
		}
	}
	return Fault{}, fmt.Errorf("%q is no fault", name)
}

// Prepare does what must be done before the workers begin. ctx bounds it.
func (f *Fault) Prepare(ctx context.Context, s *Scene) error {
	return f.do(ctx, "prepare", f.prepare, s)
}

// Strike makes the fault strike while the workers work, and returns when it is over and the workers run on their own
// again. nil means that it was seen to strike. ctx bounds it.
func (f *Fault) Strike(ctx context.Context, s *Scene) error { return f.do(ctx, "strike", f.strike, s) }

func (f *Fault) do(ctx context.Context, verb string, what func(context.Context, *Scene) error, s *Scene) error {
	if what == nil {
		return nil
	}
	if err := what(ctx, s); err != nil {
		return fmt.Errorf("%s %s: %w", verb, f.Name, err)
	}
	return nil
}
