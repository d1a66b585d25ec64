package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-pg/fencepost/internal/compare/report"
)

// ErrMissed says that a fault did not strike as it was meant to. The text says how that was seen.
var ErrMissed = errors.New("the fault missed")

// Fault is one thing that goes wrong.
type Fault struct {
	Name string
	// Redis tells that it happens to Redis, or on the way there. It does not touch a mode that has no Redis.
	Redis bool
	// Forgets tells that Redis forgets leases. The cell's TTL is then to be so long that no lease runs out by itself, or it could not be told
	// which of the two did the harm.
	Forgets bool
	// Pair tells that a mode with one Redis server needs one with a replica.
	Pair bool
	// Clock tells that it happens to a wall clock. It does not touch a mode that reads none.
	Clock bool

	prepare, strike func(context.Context, *Scene) error
}

// All returns all faults, in the order of reports; the first is none.
func All() []Fault {
	return []Fault{
		{Name: report.FaultNone},
		{Name: report.FaultPause, strike: pause},
		{Name: report.FaultRedisRestartEmpty, Redis: true, Forgets: true, strike: restartEmpty},
		{Name: report.FaultRedisFailover, Redis: true, Forgets: true, Pair: true, prepare: holdBack, strike: failOver},
		{Name: report.FaultCutRedis, Redis: true, strike: cutRedis},
		{Name: report.FaultCutPostgres, strike: cutPostgres},
		{Name: report.FaultCommitReplyLost, strike: loseCommitReply},
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

// Prepare does what has to be done before the workers begin. ctx bounds it.
func (f *Fault) Prepare(ctx context.Context, s *Scene) error {
	return f.do(ctx, "prepare", f.prepare, s)
}

// Strike has it happen while the workers are at work, and returns when it is over and they are on their own again. nil
// means that it was seen to strike. ctx bounds it.
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
