package lease

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// TryAcquireAll asks for the leases of several resources, once, with the same TTL and options. The requests travel
// together: over a single server up to 128 in one round trip, over a cluster in one round trip to each server. It
// returns one result for each resource, in the order of resources: leases[i] is nil if errs[i] is not. It waits for
// nobody, so the caller decides whether to keep what was granted beside what was not; [ReleaseAll] gives it back.
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
	asked, seen := make([]*request, len(resources)), make(map[string]bool, len(resources))
	for i, resource := range resources {
		r, err := m.request(resource, ttl, opts)
		if err != nil {
			return nil, err
		}
		if seen[resource] {
			return nil, invalidf("resource %q is named twice", resource)
		}
		seen[resource] = true
		asked[i] = r.anew(ctx)
	}
	return asked, nil
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
	var together []releasing
	var idents []ident
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
	for _, r := range slices.Concat(together, others) {
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

func (s *scripts) sendAcquireAll(ctx context.Context, all []*request) []future[grant] {
	answers := make([]future[grant], len(all))
	if s.durability.asked() { // a confirmation covers the writes of one connection
		few := make(chan struct{}, manySenders)
		for i, r := range all {
			answers[i] = async(func() (grant, error) {
				few <- struct{}{}
				defer func() { <-few }()
				if ctx.Err() != nil {
					return grant{}, interpret(ctx, "acquire", r.resource, errNotSent)
				}
				return s.runAcquire(ctx, r)
			})
		}
		return answers
	}
	calls := make([]*scriptCall, len(all))
	for i, r := range all {
		p := newScriptCall(ctx, r.detached, s.granting, s.acquireCommand(r))
		calls[i] = p
		answers[i] = future[grant]{p.done, func() (grant, error) { return s.granted(ctx, r, p.reply, p.err) }}
	}
	s.sendTogether(calls)
	return answers
}

func (s *scripts) sendReleaseAll(ctx context.Context, all []ident) []future[string] {
	answers, calls := make([]future[string], len(all)), make([]*scriptCall, len(all))
	for i, id := range all {
		p := newScriptCall(ctx, ctx, s.releasing, s.releaseCommand(id, "0"))
		calls[i] = p
		answers[i] = future[string]{p.done, func() (string, error) {
			return s.handedOn(id, p.reply), s.failed(ctx, "release", id.resource, p.err)
		}}
		if s.batcher == nil {
			answers[i] = async(func() (string, error) {
				if <-p.done; slotMoves(p.err) {
					return s.runRelease(ctx, id)
				}
				return s.handedOn(id, p.reply), s.failed(ctx, "release", id.resource, p.err)
			})
		}
	}
	s.sendTogether(calls)
	return answers
}

// sendTogether sends calls in as few pipelines as possible, and returns at once. A cluster's servers get one each: one
// that hangs must not hold up the answers of the others.
func (s *scripts) sendTogether(calls []*scriptCall) {
	switch {
	case len(calls) == 0:
	case s.batcher != nil:
		s.batcher.takeAll(calls)
	default:
		go func() { // a cluster client may have to look its servers up
			for _, group := range byServer(s.client, calls, (*scriptCall).key) {
				go s.sendPipeline(group)
			}
		}()
	}
}

// key is the lease key of a call.
func (p *scriptCall) key() string {
	key, _ := p.command[3].(string)
	return key
}

// sendPipeline sends calls in one pipeline.
func (s *scripts) sendPipeline(calls []*scriptCall) {
	began := time.Now()
	ctx := calls[0].detached
	pipe := s.client.Pipeline()
	sent := make([]*redis.Cmd, len(calls))
	for i, p := range calls {
		sent[i] = evaluation(p.detached, p.command)
		_ = pipe.Process(p.detached, sent[i]) // it is queued
	}
	_, err := pipe.Exec(ctx) // each command has its own error
	s.trips.ended(began, err)
	var unknown sync.WaitGroup
	for i, p := range calls {
		if err := sent[i].Err(); redis.HasErrorPrefix(err, "NOSCRIPT") { // a pipeline does not fall back by itself
			unknown.Go(func() {
				p.end(p.script.run(ctx, s.client, p.command))
			})
			continue
		}
		p.end(sent[i].Result())
	}
	unknown.Wait()
}

// takeAll is take for several calls, which travel together.
func (b *batcher) takeAll(calls []*scriptCall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, calls...)
	for pipelines := (len(calls) + maxTogether - 1) / maxTogether; pipelines > 0 && b.senders < fewSenders; pipelines-- {
		b.senders++
		go b.start()
	}
	if b.senders >= fewSenders && !b.watching {
		b.watch()
	}
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
