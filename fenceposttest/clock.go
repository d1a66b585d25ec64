package fenceposttest

import (
	"sync/atomic"
	"time"
)

// clock is a wall clock that can be set.
type clock struct{ ahead atomic.Int64 } // ns

// Now is the store's wall clock: the host's, and the steps of [Env.StepClock]. Pass it as WallClock to a store that the
// service makes by itself. Any goroutine may call it.
func (e *Env) Now() time.Time { return time.Now().Add(time.Duration(e.clock.ahead.Load())) }

// StepClock moves the store's wall clock. A step forward of more than what is left of a lease ends it; the store takes
// the largest of all clocks for the time that has passed, so a step back changes nothing. Any goroutine may call it.
func (e *Env) StepClock(by time.Duration) { e.clock.ahead.Add(int64(by)) }
