package lease

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// QuorumOptions are the settings of a [Quorum]. The zero value, and a nil pointer, mean the defaults.
type QuorumOptions struct {
	// Options are those of a Manager. There is no queue over a quorum: waiters ask again every
	// PollEvery, and nobody is served first for having come first.
	Options
	// NodeTimeout bounds what one node may add to a call. Default 500 ms.
	NodeTimeout time.Duration
}

// Quorum grants leases over several independent Redis servers (Redlock): a lease is held while a majority
// of the servers configured has granted it, so a minority may be down, hang, or come back empty. It has the
// interface of a [Manager] and is safe for concurrent use.
//
// Tokens rise here too: the token of a grant is the highest that its majority issued, and is written back
// to a majority before the lease counts as held, which any later majority meets. A server that lost its
// data can make them fall all the same once it makes up a majority with others that did; a fence then
// decides.
type Quorum struct{ m *Manager }

// NewQuorum makes a Quorum on the caller's clients, one per server: an odd number, at least three. It sends
// nothing. A client that is nil, given twice, or a *redis.Ring, and options out of range are refused with
// ErrInvalid; two clients of the same server are refused at the first acquire that reaches both.
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
		return nil, invalidf("a quorum is asked for no further Durability")
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
		if slices.Contains(clients[:i], client) {
			return nil, invalidf("client %d of the quorum was given before", i)
		}
		s := newScripts(client, v)
		q.nodes = append(q.nodes, &node{scripts: &s, room: make(chan struct{}, maxHanging)})
	}
	return &Quorum{m: &Manager{backend: q, opts: v, keeper: newKeeper(q, v.clock)}}, nil
}

// TryAcquire asks for the lease of a resource once; see [Manager.TryAcquire]. Where no majority granted it,
// *HeldError says that a majority answered and somebody else holds it there; otherwise *QuorumError, which matches
// ErrUnavailable, says what each server answered. What was granted is given back everywhere.
func (q *Quorum) TryAcquire(ctx context.Context, resource string, ttl time.Duration, opts *AcquireOptions) (*Lease, error) {
	return q.m.TryAcquire(ctx, resource, ttl, opts)
}

// Acquire is TryAcquire repeated, with pauses, until ctx ends; see [Manager.Acquire].
func (q *Quorum) Acquire(ctx context.Context, resource string, ttl time.Duration, opts *AcquireOptions) (*Lease, error) {
	return q.m.Acquire(ctx, resource, ttl, opts)
}
