package mode_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

// overtake has a holder read, and overtaken by another one before it writes: leave takes its lock or lease from it. It
// returns what the holder was told at first, and what came of it all once it had tried until it was done.
func (c *cell) overtake(t *testing.T, leave func(ctx context.Context)) (a work.Audit, told error) {
	t.Helper()
	next := work.Plan{Workload: work.HandOff, Seed: 5}.Operations()
	first, second := next(), next()
	holder, other := c.open(t), c.open(t)
	overtaken := sync.OnceValue(func() error {
		leave(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		return other.Run(ctx, second)
	})
	first.Between = func(context.Context) error { return overtaken() }
	told = holder.Run(t.Context(), first)
	if told != nil {
		if outcome, err := mode.Persist(t.Context(), holder, first, attempt, nil); outcome != mode.Accepted {
			t.Errorf("%s: %v", outcome, err)
		}
	}
	return c.audit(
		t,
		work.HandOff,
		[]work.Acknowledged{{ID: first.ID, Rows: first.Rows}, {ID: second.ID, Rows: second.Rows}},
	), told
}

// A Redis that forgets its leases loses updates where nothing but the lease stands before the write, and none
// behind the fence. The control looks at its lease all the same: that PostgreSQL refuses is all that is missing.
func TestARedisThatForgetsLosesUpdatesWithoutTheGuard(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode      string
		unguarded bool
		lost      int64
	}{
		{mode.RedisLock, false, 1},
		{mode.RedisLease, true, 1},
		{mode.RedisQuorum, true, 1},
		{mode.RedisLease, false, 0},
		{mode.RedisQuorum, false, 0},
	} {
		t.Run(nameOf(tt.mode, tt.unguarded, false), func(t *testing.T) {
			t.Parallel()
			c := newCell(t, tt.mode, work.HandOff, redisServers(t, tt.mode))
			c.config.Unguarded = tt.unguarded
			a, told := c.overtake(t, func(ctx context.Context) { c.flush(ctx, t) })
			if want := (work.Audit{Effects: 2, LostUpdates: tt.lost}); a != want {
				t.Errorf("the audit is %+v, want %+v; the holder was told %v", a, want, told)
			}
			if byPostgres := mode.RefusedByPostgres(told); byPostgres != (tt.lost == 0) {
				t.Errorf("that PostgreSQL refused is %v: the holder was told %v", byPostgres, told)
			}
			if refused := mode.OutcomeOf(told) == mode.Refused; refused != (tt.lost == 0) {
				t.Errorf("the holder was told %v", told)
			}
		})
	}
}

// A holder that sleeps past the end of its lease, here by a clock that jumps for it, is one that the lock recipe
// does not notice and the lease does. Renewal ends with the lease, so Redis gives it to the next.
func TestAHolderThatSleepsPastItsTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode                 string
		unguarded, unwatched bool
		lost                 int64
	}{
		{mode.RedisLock, false, false, 1},
		{mode.RedisLease, true, true, 1},
		{mode.RedisLease, true, false, 0}, // the holder itself sees it
		{mode.RedisLease, false, false, 0},
	} {
		t.Run(nameOf(tt.mode, tt.unguarded, tt.unwatched), func(t *testing.T) {
			t.Parallel()
			c := newCell(t, tt.mode, work.HandOff, redisServers(t, tt.mode))
			var mu sync.Mutex
			var ahead time.Duration
			c.config.Unguarded, c.config.Unwatched, c.config.TTL = tt.unguarded, tt.unwatched, 300*time.Millisecond
			c.config.Clock = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				return time.Now().Add(ahead)
			}
			a, told := c.overtake(t, func(context.Context) {
				mu.Lock()
				defer mu.Unlock()
				ahead = time.Hour
			})
			if want := (work.Audit{Effects: 2, LostUpdates: tt.lost}); a != want {
				t.Errorf("the audit is %+v, want %+v; the holder was told %v", a, want, told)
			}
			if tt.lost == 0 && !errors.Is(told, fencepost.ErrLost) {
				t.Errorf("the holder was told %v", told)
			}
		})
	}
}

func nameOf(name string, unguarded, unwatched bool) string {
	if unguarded {
		name += " without the guard"
	}
	if unwatched {
		name += " and without looking at the lease"
	}
	return name
}

// If a version has changed, the caller gets an error and reads again.
func TestAConflictOfVersionsIsRefused(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.Optimistic, work.HandOff, redisServers(t, mode.Optimistic))
	a, told := c.overtake(t, func(context.Context) {})
	if !errors.Is(told, mode.ErrConflict) || mode.OutcomeOf(told) != mode.Refused || !mode.RefusedByPostgres(told) {
		t.Errorf("the first writer was told %v", told)
	}
	if want := (work.Audit{Effects: 2}); a != want {
		t.Errorf("the audit is %+v, want %+v", a, want)
	}
}

// A worker that waits for a row lock holds a connection; a worker that waits for a lease does not.
func TestConnectionsHeldByAWaiter(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{mode.RedisLock: 0, mode.RedisLease: 0, mode.ForUpdate: 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, name, work.HandOff, redisServers(t, name))
			holder, waiter := c.open(t), c.open(t)
			next := work.Plan{Workload: work.HandOff, Seed: 5}.Operations()
			inside, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
			first := next()
			first.Between = func(context.Context) error {
				close(inside)
				<-leave
				return nil
			}
			go func() { done <- holder.Run(t.Context(), first) }()
			<-inside
			go func() { done <- waiter.Run(t.Context(), next()) }()
			if got := settled(waiter); got != want {
				t.Errorf("a waiter holds %d connections, want %d", got, want)
			}
			close(leave)
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if got := settled(waiter); got != 0 {
				t.Errorf("nobody at work holds %d connections", got)
			}
		})
	}
}

// settled returns the number of connections that are held, once it has not changed for a while.
func settled(m mode.Mode) int {
	const still = 200 * time.Millisecond
	held, since := m.ConnectionsHeld(), time.Now()
	for time.Since(since) < still {
		<-time.After(time.Millisecond)
		if now := m.ConnectionsHeld(); now != held {
			held, since = now, time.Now()
		}
	}
	return held
}
