package lease

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// QuorumOptions are the settings of a [Quorum]. The zero value, and a nil pointer, mean the defaults.
type QuorumOptions struct {
	// Options are those of a Manager. A quorum has no queue: waiters ask again every PollEvery, in no particular order.
	Options
	// NodeTimeout bounds the time that one node may add to a call. Default 500 ms.
	NodeTimeout time.Duration
}

// Quorum grants leases over several independent Redis servers (Redlock). A lease is held while a majority of the
// configured servers has granted it, so a minority may be down, hang, or come back empty. A Quorum has the methods of a
// [Manager] and is safe for concurrent use.
//
// Tokens rise here too. The token of a grant is the highest that its majority issued. It is written back to a majority
// before the lease counts as held, and any later majority meets it. Tokens can still fall if servers that lost their
// data make up a majority; a fence then decides.
type Quorum struct{ m *Manager }

// NewQuorum makes a Quorum on the caller's clients, one per server: an odd number, at least three. It sends nothing. It
// refuses with ErrInvalid options out of range, and a client that is nil, given twice, or a *redis.Ring. Two clients of
// the same server are refused at the first acquire that reaches both.
func NewQuorum(clients []redis.UniversalClient, opts *QuorumOptions) (*Quorum, error) {
	if len(clients) < 3 || len(clients)%2 == 0 {
		return nil, invalidf("a quorum has an odd number of servers from 3, not %d", len(clients))
	}
	var o QuorumOptions
	if opts != nil {
		o = *opts
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 500 * time.Millisecond
	}
	if o.NodeTimeout < time.Millisecond {
		return nil, invalidf("NodeTimeout %v is below 1ms", o.NodeTimeout)
	}
	if o.Durability.asked() {
		return nil, invalidf("a quorum does not support Durability")
	}
	o.NoQueue = true
	v := o.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	q := &quorum{majority: len(clients)/2 + 1, timeout: o.NodeTimeout, opts: v}
	for i, client := range clients {
		if err := checkClient(client); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(clients[:i], func(c redis.UniversalClient) bool { return sameClient(c, client) }) {
			return nil, invalidf("client %d of the quorum was given before", i)
		}
		q.nodes = append(q.nodes, newNode(i, client, v, o.NodeTimeout))
	}
	return &Quorum{m: &Manager{backend: q, opts: v, keeper: newKeeper(q, v.clock)}}, nil
}

// TryAcquire asks for the lease of a resource once; see [Manager.TryAcquire]. If no majority granted it, the error is
// one of two. *HeldError means that a majority answered and somebody else holds the lease there. Otherwise
// *QuorumError, which matches ErrUnavailable, says what each server answered; this includes servers that lost their
// data while they granted it. Shares that were granted are given back everywhere.
//
// The number of calls in flight is not limited while servers answer. Once a server has not answered for NodeTimeout, at
// most 64 calls wait for it, and up to 16 more probe whether it answers again; further calls count it as down.
func (q *Quorum) TryAcquire(
	ctx context.Context,
	resource string,
	ttl time.Duration,
	opts *AcquireOptions,
) (*Lease, error) {
	return q.m.TryAcquire(ctx, resource, ttl, opts)
}

// Acquire is TryAcquire repeated, with pauses, until ctx ends; see [Manager.Acquire].
func (q *Quorum) Acquire(
	ctx context.Context,
	resource string,
	ttl time.Duration,
	opts *AcquireOptions,
) (*Lease, error) {
	return q.m.Acquire(ctx, resource, ttl, opts)
}

// sameClient reports whether two clients are the same. Clients of a type that Go cannot compare, such as some wrappers,
// count as different: whether they lead to one server is found out when it is reached.
func sameClient(a, b redis.UniversalClient) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
