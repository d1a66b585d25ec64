package fencepost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-pg/fencepost/fence"
	"github.com/fencepost-pg/fencepost/token"
)

// Adopted is what an [Table.Adopt] has done.
type Adopted struct {
	// Lifted is the number of resources whose fences are above their rows now.
	Lifted int
	// Held are the resources that somebody holds, in their order. They were left alone: their holder lifts its
	// own fence when it meets a row that is ahead.
	Held []string
}

// adoptWorkers is how many resources are lifted at a time, each with a round trip or two under way.
const adoptWorkers = 8

// Adopt lifts the fences of a table's resources above the tokens that their rows carry. Rows get ahead of their
// fences by an import, a restore, bare tokens, or a new resource rule, and single ones heal when they are met
// (see Update). Run Adopt after such an event and before the workers start: a worker that writes by bare token, and the
// database's own trigger, do not heal, and take a current holder for stale until then.
//
// It may run beside workers, and any number of times. Each resource is lifted under its own lease, acquired as any
// worker does it, so that no current holder is overtaken; one that is held is left to its holder. A row that a writer stamps while
// Adopt is at work may be missed.
//
// It reads the whole table once, as this user sees it, keeps the resources whose rows carry a token in memory, and
// spends about four round trips on each. A row whose token is more than 2^40 above its fence is left alone,
// since lifting the fence there would use up its range: such resources stand in the error, which matches ErrTokenRegressed, and the
// rest is lifted all the same. After ErrUnavailable, and when ctx, which bounds the call, ends, what is lifted stays
// lifted: run it again.
func (t *Table[T]) Adopt(ctx context.Context) (Adopted, error) {
	maxima, err := fence.Maxima(ctx, t.store.pool, t.table, t.rule.prefix, t.rule.columns())
	if err != nil {
		return Adopted{}, err
	}
	a := adoption{store: t.store, maxima: maxima, outcomes: make([]error, len(maxima))}
	a.run(ctx)
	return a.report()
}

// adoption is one run of an Adopt.
type adoption struct {
	store    *Store
	maxima   []fence.Maximum
	outcomes []error // of each resource; errNotReached where the run ended before
}

var errNotReached = errors.New("not reached")

func (a *adoption) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(adoptWorkers, len(a.maxima)) {
		workers.Go(func() {
			for i := range next {
				a.outcomes[i] = a.store.adopt(ctx, a.maxima[i])
				if ends(a.outcomes[i]) {
					cancel()
				}
			}
		})
	}
	for i := range a.maxima {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
			a.outcomes[i] = errNotReached
		}
	}
	close(next)
	workers.Wait()
}

// ends tells whether an outcome is about more than its resource.
func ends(err error) bool {
	return err != nil && !errors.Is(err, ErrHeld) && !errors.Is(err, ErrTokenRegressed) && !errors.Is(err, ErrInvalid)
}

func (a *adoption) report() (done Adopted, err error) {
	var failed []error
	notReached := 0
	for i, outcome := range a.outcomes {
		switch {
		case outcome == nil:
			done.Lifted++
		case errors.Is(outcome, ErrHeld):
			done.Held = append(done.Held, a.maxima[i].Resource)
		case errors.Is(outcome, errNotReached):
			notReached++
		default:
			failed = append(failed, fmt.Errorf("adopt %q: %w", a.maxima[i].Resource, outcome))
		}
	}
	if notReached > 0 {
		failed = append(failed, fmt.Errorf("%w: %d resources were not reached", ErrUnavailable, notReached))
	}
	return done, errors.Join(failed...)
}

// adopt lifts one fence above the tokens of its rows, and the counter in Redis with it, so that the next grant
// need not be lifted again.
func (s *Store) adopt(ctx context.Context, m fence.Maximum) error {
	if m.Token == token.Max {
		return fmt.Errorf("%w: a row carries the highest token there is", ErrTokenRegressed)
	}
	full, err := s.qualify(m.Resource)
	if err != nil {
		return err
	}
	ttl, o := s.leaseOptions(nil)
	h, err := s.locker.tryAcquire(ctx, m.Resource, ttl, o)
	if err != nil {
		return err
	}
	l := newLease(s, m.Resource, full, h)
	defer func() {
		if err := h.Release(ctx); err != nil {
			s.opts.Logger.Warn("lease not released after an adoption", "resource", m.Resource, "error", err)
		}
	}()
	if h.Token() <= m.Token {
		if _, err := h.Reissue(ctx, m.Token); err != nil {
			return err
		}
	}
	if err := s.claim(ctx, l); err != nil {
		return err
	}
	if l.Token() <= m.Token { // the fence would not have jumped so far
		return fmt.Errorf("%w: a row carries token %d, and the fence is at %d", ErrTokenRegressed, m.Token, l.Token())
	}
	return nil
}
