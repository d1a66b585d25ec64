package fencepost

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fencepost-pg/fencepost/lease"
)

// Events are functions that are called when something happens, for metrics, traces and alarms. A nil field is skipped
// and costs nothing. No lock and no connection of the store is held during a call, except in Acquired of an
// [AdvisoryTx], and in Acquired and ClaimWait of [Store.Do], [DoOnce], [Store.Join] and [Table.Import]: these are
// called inside the transaction, before its work, and must not wait for the store's pool. RenewedLate and Lost are
// called from goroutines of their own, and the others by the call that they are about. They must be safe for concurrent
// use and must not block.
//
// The first argument of each is a context, so that a record can be linked to a trace. It is the context of the call,
// which may have ended by then. RenewedLate and Lost get a context that does not end and that has the values of the
// context with which the lease was acquired. Resources are without the namespace.
type Events struct {
	// Acquired: a lease was granted and its token claimed; waited is how long that took. In Do the claim takes effect
	// when the transaction commits. If the transaction is run again, Acquired is not called again.
	Acquired func(ctx context.Context, resource string, tok Token, waited time.Duration)
	// Refused: an acquire ended without a lease after waited. err is what the call returns; ErrHeld and ErrUnavailable
	// are the errors to count. Calls that were refused before anything was sent (ErrInvalid, ErrHeldByCaller) are not
	// reported.
	Refused func(ctx context.Context, resource string, waited time.Duration, err error)
	// Released: the holder released its lease; held is the time since it was acquired. A lease that ended in another
	// way is reported by Lost. A release that did not reach Redis is reported by neither until a later call does.
	// Leases that are transactions (of NewAdvisoryTx) are reported by neither.
	Released func(ctx context.Context, resource string, tok Token, held time.Duration)
	// RenewedLate: half of the TTL has passed since the last confirmed renewal. err is the last failure. It is nil if a
	// renewal is still in progress.
	RenewedLate func(ctx context.Context, resource string, tok Token, since time.Duration, err error)
	// Lost: a lease ended in another way than by its release.
	Lost func(ctx context.Context, resource string, tok Token, cause *LostError)
	// Stale: PostgreSQL refused a write of ours as overtaken. If a protected table refused the write because the
	// transaction had not entered the row's resource, both tokens are 0.
	Stale func(ctx context.Context, stale *StaleError)
	// Reseed: Redis had no counter for the resource, and the token was lifted above the fence; or the resource had no
	// fence, and the token was lifted above the floor that collected fences have left.
	Reseed func(ctx context.Context, resource string, tok, fence Token)
	// Regression: Redis had a counter, but the fence refused its token, and the counter was moved.
	Regression func(ctx context.Context, resource string, tok, fence Token)
	// ClaimWait: how long a claim took, including the wait for transactions under older tokens. In Do and Import it is
	// called for each run of the transaction.
	ClaimWait func(ctx context.Context, resource string, tok Token, took time.Duration)
	// Transacted: a transaction of Tx, Do, Once, DoOnce or Table.Import has ended. took covers all its runs, and in an
	// AdvisoryTx also the wait for the lock. err is nil if it was committed, and otherwise what the call returns about
	// it. It is not called if the function panics or calls runtime.Goexit, nor for writes of a [Table] by themselves.
	Transacted func(ctx context.Context, resources []string, took time.Duration, err error)
	// Retried: a transaction or a write met a serialization failure (40001) or a deadlock (40P01) and runs again,
	// unless its context ends in the short pause before that. try is the number of the attempt that failed, counted
	// from 1. err is its error.
	Retried func(ctx context.Context, resources []string, try int, err error)
	// Settled: the reply to a COMMIT was lost, and PostgreSQL was asked for the outcome; took is how long that took.
	// err is nil if the transaction was committed, ErrUnavailable if it was rolled back, and ErrOutcomeUnknown if that
	// could not be determined.
	Settled func(ctx context.Context, resources []string, took time.Duration, err error)
	// OutcomeUnknown: a transaction or a write ended with ErrOutcomeUnknown. Once and DoOnce may still find in the
	// ledger that it was committed.
	OutcomeUnknown func(ctx context.Context, resources []string, err error)
}

// subject is what a call is about: the leases that it was given, or a resource if each attempt makes a lease of its
// own.
type subject struct {
	leases   []*Lease
	resource string
}

// names returns the resources, without the namespace.
func (s subject) names() []string {
	if s.resource != "" {
		return []string{s.resource}
	}
	return namesOf(s.leases)
}

// namesOf returns the resources of leases, without the namespace.
func namesOf(leases []*Lease) []string {
	names := make([]string, len(leases))
	for i, l := range leases {
		names[i] = l.resource
	}
	return names
}

func (s *Store) acquired(ctx context.Context, l *Lease, waited time.Duration) {
	if s.opts.Events.Acquired != nil {
		s.opts.Events.Acquired(ctx, l.resource, l.Token(), waited)
	}
}

func (s *Store) refusedAcquire(ctx context.Context, resource string, waited time.Duration, err error) {
	if s.opts.Events.Refused != nil && !errors.Is(err, ErrInvalid) {
		s.opts.Events.Refused(ctx, resource, waited, err)
	}
}

// transact is retry for a transaction. It reports the transaction's end.
func (s *Store) transact(ctx context.Context, about subject, run func() error) error {
	told := s.opts.Events.Transacted
	if told == nil {
		return s.retry(ctx, about, run)
	}
	began := time.Now()
	err := s.retry(ctx, about, run)
	if !errors.Is(err, errNotAllClaimed) { // Table.Import begins another
		told(ctx, about.names(), time.Since(began), err)
	}
	return err
}

func (s *Store) retried(ctx context.Context, about subject, try int, err error) {
	if s.opts.Events.Retried != nil {
		s.opts.Events.Retried(ctx, about.names(), try, err)
	}
}

func (s *Store) settled(ctx context.Context, leases []*Lease, took time.Duration, err error) {
	if s.opts.Events.Settled != nil {
		s.opts.Events.Settled(ctx, namesOf(leases), took, err)
	}
}

func (s *Store) outcomeUnknown(ctx context.Context, about subject, err error) {
	if s.opts.Events.OutcomeUnknown != nil && errors.Is(err, ErrOutcomeUnknown) {
		s.opts.Events.OutcomeUnknown(ctx, about.names(), err)
	}
}

// holdTime measures how long a lease is held. It lets its release be reported only once.
type holdTime struct {
	mu    sync.Mutex
	begun bool
	since time.Time     // when it was acquired; zero before, and after its release has been reported
	held  time.Duration // until the first release; 0 before
}

// begin reports whether this is the first call.
func (h *holdTime) begin() (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun {
		return false
	}
	h.begun, h.since = true, time.Now()
	return true
}

// releasing records when the lease was first released.
func (h *holdTime) releasing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == 0 && !h.since.IsZero() {
		h.held = time.Since(h.since)
	}
}

// end returns how long the lease was held. first is false if that has been reported before.
func (h *holdTime) end() (held time.Duration, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first = !h.since.IsZero()
	h.since = time.Time{}
	return h.held, first
}

// released reports the release of a lease, once.
func (s *Store) released(ctx context.Context, l *Lease) {
	if held, first := l.heldFor.end(); first && s.opts.Events.Released != nil {
		s.opts.Events.Released(ctx, l.resource, l.Token(), held)
	}
}

// claimWait returns a function that reports how long a claim took. The caller runs it when it holds nothing that a
// handler could wait for: no connection, and not the right to lift the lease.
func (s *Store) claimWait(ctx context.Context, l *Lease, tok Token, took time.Duration) (tell func()) {
	if s.opts.Events.ClaimWait == nil {
		return tellNothing
	}
	return func() { s.opts.Events.ClaimWait(ctx, l.resource, tok, took) }
}

func tellNothing() {}

// regressed reports that the fence refused a token of a new grant, or that the floor of collected fences did.
func (s *Store) regressed(ctx context.Context, l *Lease, tok, fence Token, floor bool) {
	event, level, what := s.opts.Events.Regression, slog.LevelWarn, "token counter regressed"
	switch {
	case l.counterWasAbsent: // expected: Redis has restarted, or the counter was idle
		event, level, what = s.opts.Events.Reseed, slog.LevelInfo, "token counter was absent"
	case floor: // expected as well: an old fence of the same bucket was collected
		event, level, what = s.opts.Events.Reseed, slog.LevelInfo, "token counter was below the floor of collected fences"
	}
	s.opts.Logger.Log(ctx, level, what+", lifting it above the fence",
		"resource", l.resource, "token", tok, "fence", fence)
	if event != nil {
		event(ctx, l.resource, tok, fence)
	}
}

// hooks returns the hooks of leases in Redis: for what ends with a lease, and for the events that come from the
// background.
func (s *Store) hooks() lease.Hooks {
	e := s.opts.Events
	h := lease.Hooks{Lost: func(l *lease.Lease, cause *lease.LostError) {
		s.bounds.lost(l, cause)
		if e.Lost != nil {
			e.Lost(context.WithoutCancel(l.Context()), l.Resource(), cause.Token, cause)
		}
	}}
	if late := e.RenewedLate; late != nil {
		h.RenewalLate = func(l *lease.Lease, since time.Duration, err error) {
			late(context.WithoutCancel(l.Context()), l.Resource(), l.Token(), since, err)
		}
	}
	return h
}
