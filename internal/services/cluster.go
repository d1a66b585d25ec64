package services

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ClusterOptions configures a cluster. Nil means the defaults.
type ClusterOptions struct {
	// NodeTimeout is how long a primary may be silent before its replica stands for election. Default 5 s, so that a
	// busy machine alone does not cause an election.
	NodeTimeout time.Duration
	// Args are additional arguments for every redis-server. Default none.
	Args []string
}

// Primaries is the number of primaries of a [Cluster]; each has one replica.
const Primaries = 3

// slots is the number of slots of a cluster.
const slots = 16_384

// Cluster is a Redis Cluster of three primaries and three replicas.
type Cluster struct {
	host *hostProcess
	// Nodes are its servers. Initially the first three are primaries of a third of the slots each, and the others are
	// their replicas in the same order.
	Nodes []*Node
	// Description describes the servers for people, as in [Services].
	Description string
}

// StartCluster starts six servers of the installed redis-server (or valkey-server) and makes a cluster of them. It uses
// no containers, whatever FENCEPOST_SERVICES says: nodes must reach each other, and be reached, at the same addresses.
// It returns once every node considers the cluster complete, every replica is in sync, and messages pass from every
// node to every other. Ctx bounds the start only. The caller must Close the result.
//
// Errors: [ErrNotInstalled] if the program is not installed.
func StartCluster(ctx context.Context, opts *ClusterOptions) (*Cluster, error) {
	o := ClusterOptions{}
	if opts != nil {
		o = *opts
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	spec := nodeSpec{Bus: true, Args: append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", strconv.FormatInt(o.NodeTimeout.Milliseconds(), 10),
		// A replica is promoted however far it lags, because the tests are about what a failover loses.
		"--cluster-replica-validity-factor", "0", "--cluster-migration-barrier", "9",
	}, append(followAtOnce(), o.Args...)...)}
	h, nodes, description, err := startNodes(ctx, nil, 0, spec, spec, spec, spec, spec, spec)
	if err != nil {
		return nil, err
	}
	c := &Cluster{host: h, Nodes: nodes, Description: description}
	if err := c.form(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("forming a cluster: %w", err), c.Close())
	}
	return c, nil
}

// Close stops all nodes and removes their data. A second call does nothing.
func (c *Cluster) Close() error { return c.host.close() }

// Addrs returns the addresses of all nodes, for a client.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// form makes a cluster of six servers that do not know each other.
func (c *Cluster) form(ctx context.Context) error {
	for i, n := range c.Nodes {
		// Distinct epochs save the nodes a minute of finding out which of them is right.
		if err := n.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
		if i < Primaries {
			if err := n.do(ctx, thirdOfSlots(i)...); err != nil {
				return err
			}
		}
		if i > 0 {
			if err := c.Nodes[0].do(ctx, "CLUSTER", "MEET", "127.0.0.1", n.port()); err != nil {
				return err
			}
		}
	}
	knowsAll := func(ctx context.Context, n *Node) error { return n.knows(ctx, len(c.Nodes)) }
	if err := c.eachNode(ctx, knowsAll); err != nil {
		return err
	}
	for i, replica := range c.Nodes[Primaries:] {
		id, err := c.Nodes[i].id(ctx)
		if err != nil {
			return err
		}
		if err := replica.do(ctx, "CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	if err := c.eachNode(ctx, func(ctx context.Context, n *Node) error { return n.whole(ctx) }); err != nil {
		return err
	}
	return c.passesMessages(ctx)
}

// thirdOfSlots is the command that gives a primary its slots.
func thirdOfSlots(primary int) []any {
	command := []any{"CLUSTER", "ADDSLOTS"}
	for slot := primary * slots / Primaries; slot < (primary+1)*slots/Primaries; slot++ {
		command = append(command, slot)
	}
	return command
}

func (c *Cluster) eachNode(ctx context.Context, ask func(context.Context, *Node) error) error {
	for _, n := range c.Nodes {
		if err := poll(ctx, nil, func(ctx context.Context) error { return ask(ctx, n) }); err != nil {
			return fmt.Errorf("node %d: %w", n.number, err)
		}
	}
	return nil
}

// Primary returns the node that serves a slot, according to the nodes that answer.
func (c *Cluster) Primary(ctx context.Context, slot int) (*Node, error) {
	var errs []error
	for _, n := range c.Nodes {
		serves, err := n.serves(ctx, slot)
		if err != nil {
			errs = append(errs, err)
		} else if serves {
			return n, nil
		}
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no node serves slot %d", slot))...)
}

// Promoted waits until a node that was a replica serves a slot and considers the cluster complete.
func (c *Cluster) Promoted(ctx context.Context, slot int, n *Node) error {
	return poll(ctx, nil, func(ctx context.Context) error {
		serves, err := n.serves(ctx, slot)
		if err == nil && !serves {
			err = fmt.Errorf("node %d does not serve slot %d", n.number, slot)
		}
		return errors.Join(err, n.whole(ctx))
	})
}

// Replica returns the node that follows a primary.
func (c *Cluster) Replica(ctx context.Context, primary *Node) (*Node, error) {
	for _, n := range c.Nodes {
		facts, err := n.replication(ctx)
		if err != nil {
			return nil, err
		}
		if facts["role"] == "slave" && facts["master_port"] == primary.port() {
			return n, nil
		}
	}
	return nil, fmt.Errorf("node %d has no replica", primary.number)
}
