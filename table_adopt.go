package fencepost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost-pg/fencepost/internal/pgerr"
	"github.com/fencepost-pg/fencepost/internal/pgtable"
	"github.com/fencepost-pg/fencepost/token"
)

// Adopted is the result of [Table.Adopt].
type Adopted struct {
	// Lifted is the number of resources whose fences are now above their rows.
	Lifted int
	// Held lists the resources that are held, in order. Adopt left them alone: their holder lifts its own fence when it
	// meets a row that is ahead.
	Held []string
}

// adoptWorkers is how many resources are lifted at the same time, each in one or two round trips.
const adoptWorkers = 8

// Adopt lifts the fences of a table's resources above the tokens that their rows carry. Rows get ahead of their fences
// through an import, a restore, bare tokens, or a new resource rule. A single row heals when a write meets it (see
// Update). Run Adopt after such an event and before the workers start. A worker that writes with a bare token, and the
// database's own trigger, do not heal; until then they treat a current holder as stale.
//
// It may run while workers run, and any number of times. It lifts each resource under the resource's own lease, which
// it acquires as any worker does, so no current holder is overtaken. It leaves a resource that is held to its holder.
// It may miss a row that a writer stamps while Adopt runs.
//
// It reads the whole table once, as this user sees it, keeps the resources whose rows carry a token in memory, and
// spends about four round trips on each. If a row's token is more than 2^40 above its fence, the resource is left
// alone, because lifting the fence that far would use up its range. The error lists such resources and matches
// ErrTokenRegressed. The other resources are still lifted. ctx bounds the call. After ErrUnavailable, or after ctx has
// ended, the fences that were lifted stay lifted: run Adopt again.
func (t *Table[T]) Adopt(ctx context.Context) (Adopted, error) {
	maxima, err := pgtable.Maxima(ctx, t.store.pool, t.table, t.rule.prefix, t.rule.columns())
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
	maxima   []pgtable.Maximum
	outcomes []error // of each resource; errNotReached if the run ended before it
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

// ends reports whether an outcome ends the whole run, because it concerns more than one resource.
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
			failed = append(failed, pgerr.Doing(fmt.Sprintf("adopt %q", a.maxima[i].Resource), outcome))
		}
	}
	if notReached > 0 {
		failed = append(failed, fmt.Errorf("%w: %d resources were not reached", ErrUnavailable, notReached))
	}
	return done, errors.Join(failed...)
}

// adopt lifts one fence above the tokens of its rows. It lifts the counter in Redis as well, so that the next grant
// need not be lifted.
func (s *Store) adopt(ctx context.Context, m pgtable.Maximum) error {
	if m.Token == token.Max {
		return fmt.Errorf("%w: a row carries the highest possible token", ErrTokenRegressed)
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
	l := newGrantedLease(s, m.Resource, full, h)
	defer func() {
		if err := h.Release(ctx); err != nil {
			s.opts.Logger.Warn("lease not released after an adoption", "resource", m.Resource, "error", err)
		}
	}()
	if err := s.claim(ctx, l, h, claimTerms{above: m.Token}); err != nil {
		return err
	}
	if l.Token() <= m.Token { // the fence refused a jump that far
		return fmt.Errorf("%w: a row carries token %d, and the fence is at %d", ErrTokenRegressed, m.Token, l.Token())
	}
	return nil
}
