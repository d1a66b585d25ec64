package services

import (
	"context"
	"errors"
	"fmt"
)

// Pair is a Redis primary and its replica that nobody watches over, to be hurt: who fails over to whom, and
// when, is the caller's to say.
type Pair struct {
	host *hostProcess
	// Primary and Replica are what they are at the start and after Restore.
	Primary, Replica *Node
	// Description is the servers for people, as in [Services].
	Description string
}

// StartPair starts a primary and a replica from the installed redis-server (or valkey-server), with further
// arguments for both. Like [StartCluster] it uses no containers. It returns once the replica is in step. Ctx
// bounds the start only. The caller must Close the result.
//
// Errors: [ErrNotInstalled] where there is no such program.
func StartPair(ctx context.Context, args ...string) (*Pair, error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	spec := nodeSpec{Args: append(followAtOnce(), args...)}
	h, nodes, description, err := startNodes(ctx, nil, 0, spec, spec)
	if err != nil {
		return nil, err
	}
	p := &Pair{host: h, Primary: nodes[0], Replica: nodes[1], Description: description}
	if err := follow(ctx, p.Primary, p.Replica); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up a replica: %w", err), p.Close())
	}
	return p, nil
}

// follow has a replica follow a primary, and returns once it is in step.
func follow(ctx context.Context, primary, replica *Node) error {
	if err := replica.do(ctx, "REPLICAOF", "127.0.0.1", primary.port()); err != nil {
		return err
	}
	return poll(ctx, nil, func(ctx context.Context) error {
		facts, err := replica.replication(ctx)
		if err == nil && facts["master_link_status"] != "up" {
			err = errors.New("the replica is not in step")
		}
		return err
	})
}

// HoldBack makes the replica lag: it has what the primary has now, and nothing that comes later, until the
// primary is started again.
func (p *Pair) HoldBack(ctx context.Context) error { return holdBack(ctx, p.Primary, p.Replica) }

// Promote makes the replica a primary, and returns once it takes writes. The old primary is to be dead: this
// is what a failover does, and no more.
func (p *Pair) Promote(ctx context.Context) error { return p.Replica.do(ctx, "REPLICAOF", "NO", "ONE") }

// Restore starts the primary again, empty, after Kill and Promote, and has the replica follow it as at the
// start: what the replica had is gone too.
func (p *Pair) Restore(ctx context.Context) error {
	if err := p.Primary.order(ctx, request{Op: opStart, Empty: true}); err != nil {
		return err
	}
	return follow(ctx, p.Primary, p.Replica)
}

// Close stops both servers and removes their data. A second call does nothing.
func (p *Pair) Close() error { return p.host.close() }
