package fencepost

import "time"

// Events are told what happens, for metrics and alarms. A nil field is skipped. They are called
// with no lock held, RenewedLate and Lost from goroutines of their own, the others by the call that
// met the occasion; they must be safe for concurrent use and must not block.
type Events struct {
	// Acquired: a lease was granted and its token claimed; waited is how long the call took.
	Acquired func(resource string, tok Token, waited time.Duration)
	// RenewedLate: half of the TTL has gone since the last confirmed renewal. err is the last
	// failure, nil where a renewal is still under way.
	RenewedLate func(resource string, tok Token, since time.Duration, err error)
	// Lost: a lease ended other than by its release.
	Lost func(resource string, tok Token, cause *LostError)
	// Stale: PostgreSQL refused a write of ours as overtaken.
	Stale func(*StaleError)
	// Reseed: Redis had no counter for the resource, and the token was lifted above the fence.
	Reseed func(resource string, tok, fence Token)
	// Regression: Redis had a counter, but its token was not fit for the fence, and was moved.
	Regression func(resource string, tok, fence Token)
	// ClaimWait: how long a claim took, waiting for transactions under older tokens included.
	ClaimWait func(resource string, tok Token, took time.Duration)
}

func (s *Store) acquired(l *Lease, waited time.Duration) {
	if s.opts.Events.Acquired != nil {
		s.opts.Events.Acquired(l.resource, l.Token(), waited)
	}
}

func (s *Store) claimWait(l *Lease, tok Token, took time.Duration) {
	if s.opts.Events.ClaimWait != nil {
		s.opts.Events.ClaimWait(l.resource, tok, took)
	}
}

// regressed reports that the fence refused a token of a new grant.
func (s *Store) regressed(l *Lease, tok, fence Token) {
	event, what := s.opts.Events.Regression, "token counter regressed"
	if l.hold.CounterWasAbsent() {
		event, what = s.opts.Events.Reseed, "token counter was absent"
	}
	s.opts.Logger.Warn(what+", lifting it above the fence", "resource", l.resource, "token", tok, "fence", fence)
	if event != nil {
		event(l.resource, tok, fence)
	}
}
