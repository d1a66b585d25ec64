package lease

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
)

// C42, C58: a server that was stopped once is not taken for a distant one; otherwise each of its silent waiters would
// be waited for that long. A distant server is believed soon.
func TestCase42_AStopIsNoDistance(t *testing.T) {
	t.Parallel()
	took := func(m *trips, d time.Duration) { m.ended(time.Now().Add(-d), nil) }
	m := &trips{}
	for range 20 {
		took(m, time.Millisecond)
	}
	if r := m.reservation(); r != shortestReservation {
		t.Errorf("a near server's waiters have %v", r)
	}
	took(m, 14*time.Second)
	if r := m.reservation(); r > 1500*time.Millisecond {
		t.Errorf("%v after a single stop", r)
	}
	for range 15 {
		took(m, time.Millisecond)
	}
	if r := m.reservation(); r > 2*shortestReservation {
		t.Errorf("%v some answers later", r)
	}
	for range 4 {
		took(m, 3*time.Second)
	}
	if r := m.reservation(); r < 6*time.Second {
		t.Errorf("%v where each answer takes 3s", r)
	}
	m.ended(time.Now().Add(-time.Hour), context.DeadlineExceeded) // no answer
	if r := m.reservation(); r != longestReservation {
		t.Errorf("%v, more than the longest", r)
	}
}

// C59: a renewal that a server refuses at once is retried with pauses, even if the server's replies used to take longer
// than the lease has left.
func TestCase59_ARefusedRenewalIsNotSentAllTheTime(t *testing.T) {
	t.Parallel()
	l := &Lease{
		m:   &Manager{backend: &scripts{trips: &trips{smooth: time.Minute}}},
		ttl: 10 * time.Second, every: 3 * time.Second,
	}
	if pause := l.retryIn(clock.Instant{}); pause < 250*time.Millisecond {
		t.Errorf("tried again after %v", pause)
	}
}
