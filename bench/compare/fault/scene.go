package fault

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
	"github.com/fencepost-pg/fencepost/bench/wait"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// Scene is a running cell, as seen by a fault.
type Scene struct {
	Workload work.Workload
	// Workers are at work on it.
	Workers []*worker.Handle
	// Victim is the number of the worker that the fault happens to. Of invoices, which all workers want one after the
	// other, it is the worker that is ahead when the fault strikes.
	Victim int
	// History has taken in all events of the workers.
	History *History
	// HoldsUp is that of the mode; see mode.HoldsUp.
	HoldsUp bool
	// TTL is how long a lease lasts at most without renewal, unless the fault Holds it.
	TTL time.Duration
	// Pool leads to the cell's database, on a way that no fault touches.
	Pool *pgxpool.Pool
	// Applications are the application_name of all connections of each worker.
	Applications []string
	// Postgres is each worker's way to PostgreSQL, and Redis its ways to the Redis servers, in their order.
	Postgres []*faults.Proxy
	Redis    [][]*faults.Proxy
	// Servers are the Redis servers of the cell if it has no Pair.
	Servers []*services.Redis
	// Pair is the primary that they all work with, and its replica.
	Pair *services.Pair
	// Patience bounds each wait for the victim to get somewhere. After that the fault has missed. Default 15 s.
	Patience time.Duration
}

// patiently bounds a wait for the victim.
func (s *Scene) patiently(ctx context.Context, wait string) (context.Context, context.CancelFunc) {
	d := s.Patience
	if d == 0 {
		d = 15 * time.Second
	}
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: %s in %v", ErrMissed, wait, d))
}

func (s *Scene) victim() *worker.Handle { return s.Workers[s.Victim] }

// announced waits until the victim is between reading and writing, where it stays until it is told to go on.
func (s *Scene) announced(ctx context.Context) (worker.Event, error) {
	return s.atAPoint(ctx, (*worker.Handle).AnnounceNext, (*worker.Handle).GoOn)
}

// stopped waits until the victim's process has stopped itself between reading and writing.
func (s *Scene) stopped(ctx context.Context) (worker.Event, error) {
	return s.atAPoint(ctx, (*worker.Handle).PauseNext, (*worker.Handle).Resume)
}

// atAPoint brings the victim to a point where its write matters: an invoice that somebody else has made is not written
// again, so that a fault there would show nothing.
func (s *Scene) atAPoint(
	ctx context.Context,
	reach func(*worker.Handle, context.Context) (worker.Event, error),
	leave func(*worker.Handle) error,
) (worker.Event, error) {
	ctx, cancel := s.patiently(ctx, "the worker did not come to the point")
	defer cancel()
	for {
		if s.Workload == work.Invoice {
			s.Victim = s.History.ahead(s.Victim)
		}
		e, err := reach(s.victim(), ctx)
		if err != nil {
			return e, fmt.Errorf("wait for worker %d to be between reading and writing: %w", s.Victim, orCause(ctx, err))
		}
		e.Rows = s.History.rowsOf(e.ID)
		if s.Workload != work.Invoice || s.History.Times(-1, e.Rows) == 0 {
			return e, nil
		}
		if err := leave(s.victim()); err != nil {
			return e, fmt.Errorf("have worker %d go on: %w", s.Victim, err)
		}
	}
}

// announcedAgain waits until the same victim is between reading and writing once more, wherever others are.
func (s *Scene) announcedAgain(ctx context.Context) (worker.Event, error) {
	ctx, cancel := s.patiently(ctx, "the worker did not come to the point again")
	defer cancel()
	e, err := s.victim().AnnounceNext(ctx)
	if err != nil {
		return e, fmt.Errorf("wait for worker %d to be between reading and writing again: %w", s.Victim, orCause(ctx, err))
	}
	return e, nil
}

// How long others have to overtake the victim, in TTLs: a lease that is not renewed any more lasts for one of them.
// Where nobody can, the victim is held for heldUp.
const (
	overtaking = 4
	heldUp     = 2
)

// overtaken waits until others have done the work that the victim has in hand, on the victim's rows, for at least the
// given time. It returns ErrMissed if nobody has, in a mode in which others can. If the mode HoldsUp, nobody is
// expected to, and overtaken only lets the time pass.
func (s *Scene) overtaken(ctx context.Context, by worker.Event, least time.Duration) error {
	if err := wait.For(ctx, least); err != nil {
		return err
	}
	if s.HoldsUp {
		return wait.For(ctx, heldUp*s.TTL-least)
	}
	most := overtaking * s.TTL
	was, err := s.overtakenIn(ctx, by, most-least)
	if err == nil && !was {
		err = fmt.Errorf("%w: nobody overtook worker %d in %v", ErrMissed, s.Victim, most)
	}
	return err
}

// overtakenPerhaps waits for that where it may be or not.
func (s *Scene) overtakenPerhaps(ctx context.Context, by worker.Event, most time.Duration) error {
	_, err := s.overtakenIn(ctx, by, most)
	return err
}

// overtakenIn tells whether others do it in time.
func (s *Scene) overtakenIn(ctx context.Context, by worker.Event, most time.Duration) (bool, error) {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	times := 2 // the first may have been under way before
	if s.Workload == work.Invoice {
		times = 1 // there is no second
	}
	err := s.History.Await(bounded, func() bool { return s.History.since(by, s.Victim) >= times })
	if err != nil && ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil, nil
}

// goOn lets the victim go on after announced.
func (s *Scene) goOn() error {
	if err := s.victim().GoOn(); err != nil {
		return fmt.Errorf("have worker %d go on: %w", s.Victim, err)
	}
	return nil
}

// orCause returns the cause of ctx if it has ended, otherwise err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
