package checks

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// pings is how often a round trip is measured.
const pings = 10

// The reservation of a released lease lasts for twice the round trips that the waiter has measured, within these
// bounds.
const (
	shortestReservation = 200 * time.Millisecond
	longestReservation  = 10 * time.Second
)

// latency measures round trips, and compares them with what depends on them.
func (n *node) latency(ctx context.Context) ([]finding, error) {
	trips := make([]time.Duration, 0, pings)
	for i := range pings + 1 {
		began := time.Now()
		if err := n.client.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		if i > 0 { // the first one may have connected
			trips = append(trips, time.Since(began))
		}
	}
	slices.Sort(trips)
	return judgeLatency(trips[len(trips)/2], trips[len(trips)-1], n.opts.TTL)
}

// judgeLatency judges round trips: the middle one and the longest. A renewal is sent every third of the TTL.
func judgeLatency(middle, longest, ttl time.Duration) ([]finding, error) {
	found := fmt.Sprintf("round trips of %s, the longest %s", milliseconds(middle), milliseconds(longest))
	const do = "bring the workers and Redis together, or raise the TTL"
	switch {
	case longest >= ttl/3:
		return fault(do, "%s: as long as the pause between two renewals of a TTL of %v", found, ttl)
	case 2*longest > longestReservation:
		return fault(do, "%s: a waiter cannot come for a lease within the longest reservation, %v", found, longestReservation)
	case longest >= ttl/10:
		return warning(do, "%s: a tenth of the TTL of %v, so two late renewals lose a lease", found, ttl)
	case 2*middle > shortestReservation:
		return warning("bring the workers and Redis together",
			"%s: a lease that is handed on is reserved for twice as long, more than the usual %v", found, shortestReservation)
	}
	return fine("%s", found)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}

// far is how far the clocks of two hosts that are kept in step are never apart, and step is what a clock that only
// drifts does not move within a second.
const (
	far  = 500 * time.Millisecond
	step = 50 * time.Millisecond
)

// clock compares the server's clock with this host's, twice. No decision of the library does, but a clock that is off
// will be set one day, and a step of it ends leases.
func (n *node) clock(ctx context.Context) ([]finding, error) {
	first, width, err := n.offset(ctx)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(time.Second / 5)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	second, again, err := n.offset(ctx)
	if err != nil {
		return nil, err
	}
	return judgeClock(first, second, width+again)
}

// offset is how far the server's clock is ahead of this host's, and how far that may be off.
func (n *node) offset(ctx context.Context) (ahead, width time.Duration, err error) {
	before := n.limits.now()
	server, err := n.client.Time(ctx).Result()
	width = n.limits.now().Sub(before)
	return server.Sub(before.Add(width / 2)), width / 2, err
}

// judgeClock judges how far a clock was ahead, twice. width is how far the difference of both may be off.
func judgeClock(first, second, width time.Duration) ([]finding, error) {
	moved, ahead := (second - first).Abs(), "ahead of"
	if second < 0 {
		ahead = "behind"
	}
	off := second.Abs()
	const do = "keep both hosts in step (chrony, systemd-timesyncd), and have clocks slewed, not stepped"
	switch {
	case moved > width+step:
		return fault(do, "its clock or this host's stepped by %v within a fifth of a second: leases end early, and "+
			"holders lose them",
			moved.Round(time.Millisecond))
	case off > width+far:
		return warning(do, "its clock is %v %s this host's: the day it is set, leases end early",
			off.Round(100*time.Millisecond), ahead)
	}
	return fine("its clock is %s off this host's, at most", milliseconds(off+width))
}
