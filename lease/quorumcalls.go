package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

func (q *quorum) sendAcquire(ctx context.Context, r *request) future[grant] {
	return async(func() (grant, error) { return q.runAcquire(ctx, r) })
}

func (q *quorum) sendRelease(ctx context.Context, id ident) future[string] {
	return async(func() (string, error) { return q.runRelease(ctx, id) })
}

func (q *quorum) runAcquire(ctx context.Context, r *request) (grant, error) {
	granted := func(a answer[grant]) bool { return a.err == nil }
	answers := ask(ctx, q, func(ctx context.Context, n *node) (grant, error) {
		if err := n.identify(ctx); err != nil {
			return grant{}, fmt.Errorf("asking who it is: %w", err)
		}
		return n.scripts.sendAcquire(ctx, r).wait()
	}, func(answers []answer[grant]) bool { return agree(answers, granted) >= q.majority }, func(n *node, _ grant, err error) {
		// A share that comes too late to be counted is given back: it would block the node.
		if err == nil || mayHaveGranted(err) {
			q.giveBack(n, r.ident)
		}
	})
	if err := q.sameServer(); err != nil {
		q.giveBackAll(r.ident)
		return grant{}, err
	}
	if agree(answers, granted) < q.majority {
		q.giveBackAll(r.ident)
		return grant{}, q.refusal(r, answers)
	}
	g, err := q.settleToken(ctx, r, answers)
	if err != nil {
		q.giveBackAll(r.ident)
	}
	return g, err
}

// settleToken takes the highest token among those granted. Where they differ it is written back, so that every
// later majority meets it; the lease does not count as held before.
func (q *quorum) settleToken(ctx context.Context, r *request, answers []answer[grant]) (grant, error) {
	g, same := grant{anew: true}, true
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		same = same && (g.token == 0 || g.token == a.value.token)
		g.token = max(g.token, a.value.token)
		g.anew = g.anew && a.value.anew
	}
	if same {
		return g, nil
	}
	answer, _, err := q.runReissue(ctx, r.ident, g.token-1)
	switch {
	case err != nil:
		return grant{}, err
	case answer != replyReissued:
		return grant{}, &LostError{Resource: r.resource, Token: g.token, Reason: ReasonExpired}
	}
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
	// It may be free once as many shares as are missing have run out.
	slices.Sort(remaining)
	return &HeldError{
		Resource: r.resource, TTL: remaining[min(q.majority-report.Granted, len(remaining))-1], Label: last.Label,
	}
}

// giveBackAll removes what was granted, everywhere, without keeping the caller.
func (q *quorum) giveBackAll(id ident) {
	for _, n := range q.nodes {
		go q.giveBack(n, id)
	}
}

func (q *quorum) giveBack(n *node, id ident) {
	ctx, cancel := context.WithTimeout(context.Background(), q.opts.ReleaseTimeout)
	defer cancel()
	a := askNode(ctx, 0, n, func(ctx context.Context, n *node) (string, error) { return n.scripts.runRelease(ctx, id) })
	if a.err != nil {
		q.opts.Logger.Warn("share of a lease may stay until its TTL ends", "resource", id.resource, "error", a.err)
	}
}

// decide makes one answer of many: good once a majority gave it; gone or taken once so many did that none can; and
// otherwise the report.
func (q *quorum) decide(resource, good string, answers []answer[string]) (string, error) {
	said := func(word string) int {
		return agree(answers, func(a answer[string]) bool { return a.err == nil && a.value == word })
	}
	taken, gone := said(replyTaken), said(replyGone)
	switch {
	case said(good) >= q.majority:
		return good, nil
	case taken+gone > len(q.nodes)-q.majority && taken > 0:
		return replyTaken, nil
	case taken+gone > len(q.nodes)-q.majority:
		return replyGone, nil
	}
	report := &QuorumError{Resource: resource, Granted: said(good), Need: q.majority, Nodes: make([]error, len(answers))}
	for i, a := range answers {
		report.Nodes[i] = a.err
		if a.err == nil && a.value != good {
			report.Nodes[i] = errors.New(a.value)
		}
	}
	return "", report
}

func (q *quorum) runReissue(ctx context.Context, id ident, fence token.Token) (string, token.Token, error) {
	answers := ask(ctx, q, func(ctx context.Context, n *node) (string, error) {
		word, _, err := n.scripts.runReissue(ctx, id, fence)
		return word, err
	}, q.settled(replyReissued), ignore[string])
	word, err := q.decide(id.resource, replyReissued, answers)
	return word, fence + 1, err
}

// settled is enough of an answer for those that change what is there.
func (q *quorum) settled(good string) func([]answer[string]) bool {
	return func(answers []answer[string]) bool {
		return agree(answers, func(a answer[string]) bool { return a.err == nil && a.value == good }) >= q.majority
	}
}

func (q *quorum) runRelease(ctx context.Context, id ident) (string, error) {
	answers := ask(ctx, q, func(ctx context.Context, n *node) (string, error) { return n.scripts.sendRelease(ctx, id).wait() },
		q.settled(replyReleased), ignore[string])
	return q.decide(id.resource, replyReleased, answers)
}

func (q *quorum) runLeave(context.Context, ident, string) error { return nil } // there is no queue

func (q *quorum) runRenew(ctx context.Context, id ident, ttl time.Duration) (string, error) {
	answers := ask(ctx, q, func(ctx context.Context, n *node) (string, error) { return n.scripts.runRenew(ctx, id, ttl) },
		q.settled(replyRenewed), ignore[string])
	return q.decide(id.resource, replyRenewed, answers)
}

// renewAll renews a batch with one pipeline per node, and gives nodes that lost a lease its share back, while a
// majority confirms it.
func (q *quorum) renewAll(batch []renewal) {
	asked := slices.Clone(batch) // a node that answers late may still read it
	perNode := ask(context.Background(), q, func(_ context.Context, n *node) ([]renewal, error) {
		mine := slices.Clone(asked)
		n.scripts.renewAll(mine)
		return mine, nil
	}, func(answers []answer[[]renewal]) bool { return agree(answers, allRenewed) >= q.majority }, ignore[[]renewal])
	for i := range batch {
		answers := make([]answer[string], len(perNode))
		for j, a := range perNode {
			answers[j] = answer[string]{node: j, err: a.err}
			if a.err == nil {
				answers[j].value, answers[j].err = a.value[i].answer, a.value[i].err
			}
		}
		b := &batch[i]
		b.answer, b.err = q.decide(b.lease.resource, replyRenewed, answers)
		if b.answer == replyRenewed {
			q.fill(*b, answers)
		}
	}
}

// allRenewed is a node that renewed every lease of a batch.
func allRenewed(a answer[[]renewal]) bool {
	if a.err != nil {
		return false
	}
	for _, r := range a.value {
		if r.err != nil || r.answer != replyRenewed {
			return false
		}
	}
	return true
}

func (q *quorum) refresh() {}

func (q *quorum) groups(leases []*Lease) [][]*Lease { return [][]*Lease{leases} }

func (q *quorum) fill(b renewal, answers []answer[string]) {
	tok := b.lease.Token()
	for _, a := range answers {
		if a.err == nil && a.value == replyGone {
			n := q.nodes[a.node]
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
				defer cancel()
				got := askNode(ctx, a.node, n, func(ctx context.Context, n *node) (string, error) {
					return n.scripts.runFill(ctx, b.lease, b.ttl, tok)
				})
				if got.err == nil && b.lease.Err() != nil {
					q.giveBack(n, b.lease.ident) // released meanwhile
				}
			}()
		}
	}
}

// QuorumError says what each server of a quorum answered, where no majority did what was asked.
type QuorumError struct {
	Resource string
	Granted  int // how many servers did what was asked
	Need     int // the majority
	// Nodes holds one entry per client, in their order; nil for those that did what was asked.
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

// Is reports whether target is [ErrUnavailable]. What single servers said does not match: it is not the outcome.
func (e *QuorumError) Is(target error) bool { return target == ErrUnavailable }

// checkClient refuses clients that cannot hold leases.
func checkClient(client redis.UniversalClient) error {
	switch client.(type) {
	case nil:
		return invalidf("the redis client is nil")
	case *redis.Ring:
		return invalidf("a redis.Ring cannot hold leases: its counters do not follow their resources")
	}
	return nil
}
