package lease

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// TryAcquireAll asks for the leases of several resources, once, with the same TTL and options. The requests travel
// together: over a single server in one round trip and in one call of a script for each 128, over a cluster in one
// round trip to each server. A resource that is not simply free is then asked for by itself. It returns one result for
// each resource, in the order of resources: leases[i] is nil if errs[i] is not. It waits for nobody, so the caller
// decides whether to keep what was granted beside what was not; [ReleaseAll] gives it back.
//
// The errors are those of [Manager.TryAcquire]. If one of the arguments is invalid, or a resource is named twice,
// nothing is sent and all errors are ErrInvalid. ctx bounds the call and supplies the values of the leases' contexts.
func (m *Manager) TryAcquireAll(
	ctx context.Context, resources []string, ttl time.Duration, opts *AcquireOptions,
) (leases []*Lease, errs []error) {
	leases, errs = make([]*Lease, len(resources)), make([]error, len(resources))
	asked, err := m.requests(ctx, resources, ttl, opts)
	if err == nil && ctx.Err() != nil {
		err = interpret(ctx, "acquire", fmt.Sprint(len(resources), " resources"), ctx.Err())
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return leases, errs
	}
	start := m.opts.clock.now()
	var failed sync.WaitGroup
	for i, f := range m.backend.sendAcquireAll(ctx, asked) {
		g, pending, err := f.await(ctx, 0)
		if pending == nil && err == nil {
			leases[i], errs[i] = m.outcome(ctx, asked[i], start, g, nil, nil)
			continue
		}
		failed.Go(func() { leases[i], errs[i] = m.outcome(ctx, asked[i], start, g, pending, err) }) // it may clean up
	}
	failed.Wait()
	return leases, errs
}

// requests prepares one attempt for each resource.
func (m *Manager) requests(
	ctx context.Context, resources []string, ttl time.Duration, opts *AcquireOptions,
) ([]*request, error) {
	if len(resources) == 0 {
		return nil, nil
	}
	first, err := m.request(resources[0], ttl, opts)
	if err != nil {
		return nil, err
	}
	if err := differ(resources); err != nil {
		return nil, err
	}
	first.detached = detach(ctx)
	room, asked := make([]request, len(resources)), make([]*request, len(resources))
	for i, resource := range resources {
		if err := checkResource(resource); err != nil {
			return nil, err
		}
		r := &room[i]
		*r = first
		r.resource, r.keys = resource, keysOf(m.opts.Prefix, resource)
		r.drawNonce()
		asked[i] = r
	}
	return asked, nil
}

// differ refuses a resource that is named twice. Mostly the names are in order.
func differ(resources []string) error {
	rise := true
	for i := 1; i < len(resources) && rise; i++ {
		rise = resources[i-1] < resources[i]
	}
	if rise {
		return nil
	}
	seen := make(map[string]bool, len(resources))
	for _, resource := range resources {
		if seen[resource] {
			return invalidf("resource %q is named twice", resource)
		}
		seen[resource] = true
	}
	return nil
}

// TryAcquireAll asks for the leases of several resources, once; see [Manager.TryAcquireAll]. Every server is sent the
// requests of all resources at the same time.
func (q *Quorum) TryAcquireAll(
	ctx context.Context, resources []string, ttl time.Duration, opts *AcquireOptions,
) (leases []*Lease, errs []error) {
	return q.m.TryAcquireAll(ctx, resources, ttl, opts)
}

// ReleaseAll gives several leases back, as [Lease.Release] does each of them. The releases travel together, as the
// requests of [Manager.TryAcquireAll] do; they are sent in the order of leases, and nil leases are passed over. errs[i]
// is the result of leases[i]. ctx supplies values only. ReleaseAll is safe for concurrent use.
func ReleaseAll(ctx context.Context, leases []*Lease) (errs []error) {
	errs = make([]error, len(leases))
	of := make(map[*Manager][]int)
	for i, l := range leases {
		if l != nil {
			of[l.m] = append(of[l.m], i)
		}
	}
	var managers sync.WaitGroup
	for m, places := range of {
		managers.Go(func() { m.releaseAll(ctx, leases, places, errs) })
	}
	managers.Wait()
	return errs
}

// releasing is a release in flight.
type releasing struct {
	place  int // of its lease
	answer future[string]
	lost   error // how the lease had been lost before
}

// releaseAll releases the leases at some places, all of this manager, and puts their results at the same places.
func (m *Manager) releaseAll(ctx context.Context, leases []*Lease, places []int, errs []error) {
	detached := context.WithoutCancel(ctx)
	together, idents := make([]releasing, 0, len(places)), make([]ident, 0, len(places))
	var others []releasing
	for _, place := range places {
		l := leases[place]
		renewing, removed, lost := l.beginRelease()
		switch {
		case removed:
		case renewing == nil:
			together = append(together, releasing{place: place, lost: lost})
			idents = append(idents, l.ident)
		default:
			others = append(others, releasing{place, l.releaseOnce(detached, renewing), lost})
		}
	}
	if len(together) > 0 {
		for i, answer := range m.backend.sendReleaseAll(detached, idents) {
			together[i].answer = answer
		}
	}
	limit, cancel := context.WithTimeout(detached, m.opts.ReleaseTimeout)
	defer cancel()
	for _, r := range append(together, others...) {
		errs[r.place] = leases[r.place].released(limit, r)
	}
}

// released returns the result of a release. limit bounds the wait for it.
func (l *Lease) released(limit context.Context, r releasing) error {
	word, pending, err := r.answer.await(limit, 0)
	if pending != nil {
		err = l.unanswered()
	} else {
		err = l.finishRelease(word, err)
	}
	if r.lost != nil {
		return r.lost
	}
	return err
}

func (q *quorum) sendAcquireAll(ctx context.Context, all []*request) []future[grant] {
	answers := make([]future[grant], len(all))
	for i, r := range all {
		answers[i] = q.sendAcquire(ctx, r)
	}
	return answers
}

func (q *quorum) sendReleaseAll(ctx context.Context, all []ident) []future[string] {
	answers := make([]future[string], len(all))
	for i, id := range all {
		answers[i] = q.sendRelease(ctx, id)
	}
	return answers
}
