package lease

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

func (q *quorum) runRenew(ctx context.Context, id ident, ttl time.Duration) (string, error) {
	answers := q.askWords(ctx, id, replyRenewed, func(n *node) (string, error) { return n.scripts.runRenew(ctx, id, ttl) })
	return q.renewed(id, ttl, answers)
}

func (q *quorum) runShorten(ctx context.Context, id ident, ttl time.Duration) (word string, open bool, err error) {
	var retried atomic.Bool
	answers := q.askWords(ctx, id, replyRenewed, func(n *node) (string, error) {
		word, open, err := n.scripts.runShorten(ctx, id, ttl)
		if open {
			retried.Store(true)
		}
		return word, err
	})
	// A server that has not answered yet may carry it out after a later renewal that it confirms.
	open = agree(answers, func(a answer[string]) bool { return a.err == nil }) < len(q.nodes) || retried.Load()
	word, err = q.renewed(id, ttl, answers)
	return word, open, err
}

// renewed makes one answer of the replies to a renewal.
func (q *quorum) renewed(id ident, ttl time.Duration, answers []answer[string]) (string, error) {
	word, err := q.decide(id.resource, replyRenewed, answers)
	if word == replyRenewed {
		q.fill(id, ttl)
	}
	return word, err
}

// renewAll renews a batch with one pipeline per node. It restores shares on nodes that lost them, if a majority
// confirms the lease.
func (q *quorum) renewAll(batch []renewal) {
	asked := slices.Clone(batch) // a node that answers late may still read it
	perNode := ask(context.Background(), q, func(n *node) ([]renewal, error) { return renewOn(n, slices.Clone(asked)) },
		func(perNode []answer[[]renewal]) bool {
			for i := range asked {
				if agree(
					perNode,
					func(a answer[[]renewal]) bool { return a.err == nil && a.value[i].answer == replyRenewed },
				) < q.majority {
					return false
				}
			}
			return true
		})
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
			q.fill(b.lease.ident, b.ttl)
		}
	}
}

// renewOn renews a batch on one node. It returns an error if the node answered for no lease.
func renewOn(n *node, batch []renewal) ([]renewal, error) {
	n.scripts.renewAll(batch)
	silent, last := true, error(nil)
	for _, b := range batch {
		b.lease.shares.hear(n.index, b.answer, b.err)
		silent, last = silent && !spoke(b.err), b.err
	}
	if silent {
		return batch, last
	}
	return batch, nil
}

func (q *quorum) refresh() {}

// roundTrip is that of the slowest server in the fastest majority.
func (q *quorum) roundTrip() time.Duration {
	var each []time.Duration
	for _, n := range q.nodes {
		each = append(each, n.scripts.roundTrip())
	}
	slices.Sort(each)
	return each[q.majority-1]
}

func (q *quorum) groups(leases []*Lease) [][]*Lease { return [][]*Lease{leases} }

// fill restores the share of a lease on nodes that are known to lack it. Called when a majority has confirmed the
// lease.
func (q *quorum) fill(id ident, ttl time.Duration) {
	for _, n := range q.nodes {
		if id.shares.toFill(n.index) {
			go askNode(n, func(n *node) (struct{}, error) { return struct{}{}, q.fillOn(n, id, ttl) })
		}
	}
}

func (q *quorum) fillOn(n *node, id ident, ttl time.Duration) error {
	if !id.shares.begin(n.index) {
		return errNotSent
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	tok, _ := id.shares.held()
	answer, err := n.scripts.runFill(ctx, id, id.shares.label, ttl, tok)
	says := saysUnknown
	switch {
	case err == nil && answer == replyFilled:
		says = saysOurs
	case err == nil:
		says = saysAnothers
	}
	if id.shares.end(n.index, says) {
		return q.remove(n, id)
	}
	return err
}
