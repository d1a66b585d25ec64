package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-pg/fencepost/bench/wait"
)

// ErrShared says that two clients held the lock at the same time.
var ErrShared = errors.New("two clients held the lock at the same time")

// Lock waits for the lock and returns the function that releases it.
type Lock func(ctx context.Context) (unlock func(ctx context.Context) error, err error)

// Plan says how the clients behave.
type Plan struct {
	// Rounds is how many slices each candidate gets, at least 1.
	Rounds int
	// Slice is how long the clients play in one round.
	Slice time.Duration
	// Hold and Pause are how long each holds the lock, and then does without it.
	Hold, Pause time.Duration
	// Grace is how long a client that waits at the end of a slice may go on: a lock that nobody holds any more is
	// handed out within it, or not at all. Default one second.
	Grace time.Duration
}

// turn is one client's hold of the lock.
type turn struct {
	client              int
	asked, got, leaving time.Time // before the call to lock, after it, and before the call to unlock
}

// grace is the default of Plan.Grace.
const grace = time.Second

// slice is what happened in one.
type slice struct {
	turns []turn // in no order
	end   time.Time
	// stranded is how many clients still waited when everybody else had been gone for the time of grace.
	stranded int
}

// play lets all clients run for one slice. A client that waits at the end still takes its turn: an abandoned lock would
// cost the next round.
func play(ctx context.Context, p Plan, clients []Lock) (slice, error) {
	s := slice{end: time.Now().Add(p.Slice)}
	ctx, cancel := context.WithDeadline(ctx, s.end.Add(cmp.Or(p.Grace, grace)))
	defer cancel()
	var holders atomic.Int32
	players, errs := make([]client, len(clients)), make([]error, len(clients))
	var all sync.WaitGroup
	for i, lock := range clients {
		all.Go(func() {
			players[i] = client{number: i, lock: lock, holders: &holders}
			errs[i] = players[i].run(ctx, p, s.end)
			if errs[i] != nil {
				cancel() // the others need not go on
			}
		})
	}
	all.Wait()
	for _, c := range players {
		s.turns = append(s.turns, c.turns...)
		if c.stranded {
			s.stranded++
		}
	}
	return s, first(errs)
}

// first returns the first error that is not the end of the others' context, if there is one.
func first(errs []error) error {
	var least error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if least == nil {
			least = err
		}
	}
	return least
}

type client struct {
	number   int
	lock     Lock
	holders  *atomic.Int32 // of all clients, how many hold the lock
	turns    []turn
	stranded bool
}

func (c *client) run(ctx context.Context, p Plan, end time.Time) error {
	for time.Now().Before(end) {
		err := c.take(ctx, p.Hold)
		if c.stranded {
			return nil
		}
		if err != nil {
			return err
		}
		if err := wait.For(ctx, p.Pause); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) take(ctx context.Context, hold time.Duration) error {
	t := turn{client: c.number, asked: time.Now()}
	unlock, err := c.lock(ctx)
	if err != nil {
		c.stranded = errors.Is(ctx.Err(), context.DeadlineExceeded)
		return fmt.Errorf("lock: %w", err)
	}
	t.got = time.Now()
	if c.holders.Add(1) > 1 {
		return ErrShared
	}
	held := wait.For(ctx, hold)
	c.holders.Add(-1)
	t.leaving = time.Now()
	if err := unlock(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	c.turns = append(c.turns, t)
	return held
}
