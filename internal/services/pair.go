package services

import (
	"context"
	"errors"
	"fmt"
)

// Pair is a Redis primary and its replica without a failover monitor. The caller decides when to fail over.
type Pair struct {
	host *hostProcess
	// Primary and Replica are the roles at the start and after Restore.
	Primary, Replica *Node
	// Description describes the servers for people, as in [Services].
	Description string
}

// StartPair starts a primary and a replica from the installed redis-server (or valkey-server), with additional
// arguments for both. Like [StartCluster] it uses no containers. It returns once the replica is in sync. Ctx bounds the
// start only. The caller must Close the result.
//
// Errors: [ErrNotInstalled] if the program is not installed.
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

// follow makes a replica follow a primary, and returns once it is in sync.
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

// HoldBack makes the replica lag: it keeps what the primary has now, and receives nothing later, until the primary is
// restarted.
func (p *Pair) HoldBack(ctx context.Context) error { return holdBack(ctx, p.Primary, p.Replica) }

// Promote makes the replica a primary, and returns once it accepts writes. The old primary must be dead. This is all
// that a failover does.
func (p *Pair) Promote(ctx context.Context) error { return p.Replica.do(ctx, "REPLICAOF", "NO", "ONE") }

// Restore restarts the primary, empty, after Kill and Promote, and makes the replica follow it as at the start. The
// replica's data is lost too.
func (p *Pair) Restore(ctx context.Context) error {
	if err := p.Primary.order(ctx, request{Op: opStart, Empty: true}); err != nil {
		return err
	}
	return follow(ctx, p.Primary, p.Replica)
}

// Close stops both servers and removes their data. A second call does nothing.
func (p *Pair) Close() error { return p.host.close() }
