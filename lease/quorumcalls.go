package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-pg/fencepost/token"
)

func (q *quorum) acquire(ctx context.Context, r *request) (g grant, pending func() error, err error) {
	return q.sendAcquire(ctx, r).await(ctx, r.within)
}

func (q *quorum) sendAcquire(ctx context.Context, r *request) future[grant] {
	var calls context.Context
	calls, r.shares = newShares(ctx, len(q.nodes), r.label)
	return async(func() (grant, error) { return q.runAcquire(ctx, calls, r) })
}

func (q *quorum) release(
	ctx context.Context,
	id ident,
	within time.Duration,
) (answer string, pending func() error, err error) {
	return q.sendRelease(ctx, id).await(ctx, within)
}

func (q *quorum) sendRelease(ctx context.Context, id ident) future[string] {
	return async(func() (string, error) { return q.runRelease(ctx, id) })
}

// runAcquire asks all nodes, under calls, and continues once a majority has answered. Nodes that grant the lease later
// keep their shares.
func (q *quorum) runAcquire(ctx, calls context.Context, r *request) (grant, error) {
	granted := func(a answer[grant]) bool { return a.err == nil }
	answers := ask(ctx, q, func(n *node) (grant, error) { return q.acquireOn(calls, n, r) },
		func(answers []answer[grant]) bool { return agree(answers, granted) >= q.majority })
	g, err := grant{}, q.sameServer()
	switch {
	case err != nil:
	case agree(answers, granted) < q.majority:
		err = q.refusal(r, answers)
	default:
		g, err = q.settleToken(ctx, r, answers)
	}
	if err != nil {
		q.giveBackAll(r.ident)
		return grant{}, err
	}
	return g, nil
}

// acquireOn asks one node. Its reply may come long after the lease was granted, held, renewed or released.
func (q *quorum) acquireOn(ctx context.Context, n *node, r *request) (grant, error) {
	if err := n.identify(ctx, q.timeout); err != nil {
		return grant{}, fmt.Errorf("asking who it is: %w", err)
	}
	if !r.shares.begin(n.index) {
		return grant{}, errNotSent
	}
	g, err := n.scripts.acquireWhole(ctx, r)
	says := saysUnknown
	if err == nil {
		says = saysOurs
	} else if !mayHaveGranted(err) {
		says = saysAbsent
	}
	if lease, held := r.shares.held(); err == nil && held && g.token < lease {
		// Its counter lags, and a later majority may need it.
		_, _ = n.scripts.runFill(ctx, r.ident, r.label, r.ttl, lease)
	}
	if r.shares.end(n.index, says) {
		_ = q.remove(n, r.ident)
	}
	return g, err
}

// settleToken takes the highest of the granted tokens. If they differ, it writes the highest back, so that every later
// majority meets it. The lease does not count as held before that.
func (q *quorum) settleToken(ctx context.Context, r *request, answers []answer[grant]) (grant, error) {
	g, same := grant{absent: true}, true
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		same = same && (g.token == 0 || g.token == a.value.token)
		g.token = max(g.token, a.value.token)
		g.absent = g.absent && a.value.absent
	}
	if !same {
		if written := q.writeToken(ctx, r.ident, g.token-1); agree(written, is(replyReissued)) < q.majority {
			// This includes servers that lost their data after they granted it: nobody holds the lease yet, so nobody
			// can lose it.
			return grant{}, q.report(r.resource, replyReissued, written)
		}
	}
	r.shares.setToken(g.token)
	return g, nil
}

// refusal says why no majority granted the lease.
func (q *quorum) refusal(r *request, answers []answer[grant]) error {
	report := &QuorumError{Resource: r.resource, Need: q.majority, Nodes: make([]error, len(answers))}
	var remaining []time.Duration
	var last *HeldError
	for i, a := range answers {
		report.Nodes[i] = a.err
		if a.err == nil {
			report.Granted++
		}
		if held := new(HeldError); errors.As(a.err, &held) {
			last = held
			remaining = append(remaining, held.TTL)
		}
	}
	if last == nil || report.Granted+len(remaining) < q.majority {
		return report
	}
	// The lease may be free once as many shares as are missing have expired.
	slices.Sort(remaining)
	return &HeldError{
		Resource: r.resource, TTL: remaining[min(q.majority-report.Granted, len(remaining))-1], Label: last.Label,
	}
}

// giveBackAll gives a nonce up and removes its shares everywhere, without blocking the caller. The calls to nodes that
// have yet to answer do so themselves; see shares.
func (q *quorum) giveBackAll(id ident) {
	id.shares.giveUp()
	for _, n := range q.nodes {
		if sent, asked := id.shares.asked(n.index); sent && !asked {
			go askNode(n, func(n *node) (struct{}, error) { return struct{}{}, q.remove(n, id) })
		}
	}
}

// remove gives a node's share back. Called once the nonce is over.
func (q *quorum) remove(n *node, id ident) error {
	ctx, cancel := context.WithTimeout(context.Background(), q.opts.ReleaseTimeout)
	defer cancel()
	answer, err := n.scripts.runRelease(ctx, id)
	id.shares.hear(n.index, answer, err)
	if err != nil {
		q.opts.Logger.Warn(
			"share of a lease may stay until its TTL ends",
			"resource",
			id.resource,
			"server",
			n.index,
			"error",
			err,
		)
	}
	return err
}

// is matches nodes that answered with the given word.
func is(word string) func(answer[string]) bool {
	return func(a answer[string]) bool { return a.err == nil && a.value == word }
}

// decide makes one answer of many: good once a majority gave it; gone or taken once so many gave those that no majority
// is possible; otherwise the report.
func (q *quorum) decide(resource, good string, answers []answer[string]) (string, error) {
	taken, gone := agree(answers, is(replyTaken)), agree(answers, is(replyGone))
	switch {
	case agree(answers, is(good)) >= q.majority:
		return good, nil
	case taken+gone > len(q.nodes)-q.majority && taken > 0:
		return replyTaken, nil
	case taken+gone > len(q.nodes)-q.majority:
		return replyGone, nil
	}
	return "", q.report(resource, good, answers)
}

// report says which nodes did what was asked, and why the others did not.
func (q *quorum) report(resource, good string, answers []answer[string]) error {
	report := &QuorumError{
		Resource: resource, Granted: agree(answers, is(good)), Need: q.majority, Nodes: make([]error, len(answers)),
	}
	for i, a := range answers {
		report.Nodes[i] = a.err
		if a.err == nil && a.value != good {
			report.Nodes[i] = errors.New(a.value)
		}
	}
	return report
}

// askWords asks all nodes for one word about their shares and records what each says. A majority of good is enough.
func (q *quorum) askWords(
	ctx context.Context,
	id ident,
	good string,
	call func(*node) (string, error),
) []answer[string] {
	return ask(ctx, q, func(n *node) (string, error) {
		word, err := call(n)
		id.shares.hear(n.index, word, err)
		return word, err
	}, func(answers []answer[string]) bool { return agree(answers, is(good)) >= q.majority })
}

func (q *quorum) runReissue(ctx context.Context, id ident, fence token.Token) (string, token.Token, error) {
	word, err := q.decide(id.resource, replyReissued, q.writeToken(ctx, id, fence))
	if word == replyReissued {
		id.shares.setToken(fence + 1)
	}
	return word, fence + 1, err
}

// writeToken makes the nodes that carry the lease number it just above a fence.
func (q *quorum) writeToken(ctx context.Context, id ident, fence token.Token) []answer[string] {
	return q.askWords(ctx, id, replyReissued, func(n *node) (string, error) {
		word, _, err := n.scripts.runReissue(ctx, id, fence)
		return word, err
	})
}

// Reasons not to send a release to a node.
var (
	errStillAsked = errors.New("not released: the acquire is not answered yet, and the share is given back once it is")
	errNeverAsked = errors.New("never asked for the lease")
)

func (q *quorum) runRelease(ctx context.Context, id ident) (string, error) {
	id.shares.giveUp()
	answers := q.askWords(ctx, id, replyReleased, func(n *node) (string, error) {
		switch sent, asked := id.shares.asked(n.index); {
		case asked:
			return "", errStillAsked
		case !sent:
			return "", errNeverAsked
		}
		return n.scripts.releaseWhole(ctx, id)
	})
	for i, a := range answers {
		if errors.Is(a.err, errNeverAsked) {
			answers[i] = answer[string]{node: i, value: replyGone}
		}
	}
	return q.decide(id.resource, replyReleased, answers)
}

// There is no queue.
func (q *quorum) runLeave(context.Context, ident, string, bool) error { return nil }

func (q *quorum) runConfirm(context.Context, ident, string, time.Duration, string) (string, error) {
	return replyGone, nil
}

func (q *quorum) handsOver() bool { return false }

// QuorumError says what each server of a quorum answered, if no majority did what was asked.
type QuorumError struct {
	Resource string
	Granted  int // how many servers did what was asked
	Need     int // the majority
	// Nodes holds one entry per client, in their order; the entry is nil for a server that did what was asked.
	Nodes []error
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %q: %d of %d servers, %d needed", ErrUnavailable, e.Resource, e.Granted, len(e.Nodes), e.Need)
	for i, err := range e.Nodes {
		if err != nil {
			fmt.Fprintf(&b, "; server %d: %v", i, err)
		}
	}
	return b.String()
}

// Is reports whether target is [ErrUnavailable]. The errors of single servers do not match: they are not the outcome.
func (e *QuorumError) Is(target error) bool { return target == ErrUnavailable }
