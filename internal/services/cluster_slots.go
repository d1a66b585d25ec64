package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

func (n *Node) port() string {
	_, port, _ := net.SplitHostPort(n.Addr())
	return port
}

// id is a node's name in its cluster.
func (n *Node) id(ctx context.Context) (string, error) {
	c := n.dial()
	defer func() { _ = c.Close() }()
	return c.ClusterMyID(ctx).Result()
}

// knows checks that a node has met the given number of nodes, including itself, and is connected to all of them.
func (n *Node) knows(ctx context.Context, count int) error {
	c := n.dial()
	defer func() { _ = c.Close() }()
	text, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	known := 0
	for line := range strings.Lines(text) {
		if fields := strings.Fields(
			line,
		); len(fields) >= 8 && !strings.Contains(fields[2], "handshake") &&
			fields[7] == "connected" {
			known++
		}
	}
	if known < count {
		return fmt.Errorf("it knows %d nodes of %d", known, count)
	}
	return nil
}

// whole checks that a node considers its cluster complete and, if it is a replica, that it is in sync.
func (n *Node) whole(ctx context.Context) error {
	c := n.dial()
	defer func() { _ = c.Close() }()
	text, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if facts := parseInfo(text); facts["cluster_state"] != "ok" || facts["cluster_slots_ok"] != fmt.Sprint(slots) {
		return fmt.Errorf("the cluster is %q with %s slots", facts["cluster_state"], facts["cluster_slots_ok"])
	}
	facts, err := n.replication(ctx)
	if err != nil {
		return err
	}
	if facts["role"] == "slave" && facts["master_link_status"] != "up" {
		return errors.New("the replica is not in step")
	}
	return nil
}

// serves reports whether a node holds a slot as its primary.
func (n *Node) serves(ctx context.Context, slot int) (bool, error) {
	c := n.dial()
	defer func() { _ = c.Close() }()
	text, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") || !strings.Contains(fields[2], "master") {
			continue
		}
		for _, span := range fields[8:] { // "5461-10921", "7"; "[7->-…]" while one moves
			first, last, isRange := strings.Cut(span, "-")
			if !isRange {
				last = first
			}
			if atoi(first) <= slot && slot <= atoi(last) {
				return true, nil
			}
		}
	}
	return false, nil
}

// BeginMove tells two primaries, the slot's and another, that the slot is about to move from one to the other. Until
// FinishMove, each of its keys is on the node it has been moved to. A client that asks the wrong node is redirected by
// ASK, or gets TRYAGAIN.
func (c *Cluster) BeginMove(ctx context.Context, slot int) (from, to *Node, err error) {
	if from, err = c.Primary(ctx, slot); err != nil {
		return nil, nil, err
	}
	if to = c.Nodes[0]; to == from {
		to = c.Nodes[1]
	}
	fromID, err := from.id(ctx)
	if err != nil {
		return nil, nil, err
	}
	toID, err := to.id(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID); err != nil {
		return nil, nil, err
	}
	return from, to, from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
}

// MoveKeys moves up to limit keys of a slot, one by one, and returns how many it moved.
func (c *Cluster) MoveKeys(ctx context.Context, slot int, from, to *Node, limit int) (moved int, err error) {
	at := from.dial()
	defer func() { _ = at.Close() }()
	keys, err := at.ClusterGetKeysInSlot(ctx, slot, limit).Result()
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		if err := c.MoveKey(ctx, key, from, to); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

// MoveKey moves one key of a migrating slot. It is no error if the key no longer exists.
func (c *Cluster) MoveKey(ctx context.Context, key string, from, to *Node) error {
	at := from.dial()
	defer func() { _ = at.Close() }()
	if err := at.Migrate(ctx, "127.0.0.1", to.port(), key, 0, askPatience).Err(); err != nil {
		return fmt.Errorf("moving %q: %w", key, err)
	}
	return nil
}

// FinishMove moves the remaining keys and hands the slot over.
func (c *Cluster) FinishMove(ctx context.Context, slot int, from, to *Node) error {
	toID, err := to.id(ctx)
	if err != nil {
		return err
	}
	for {
		if _, err := c.MoveKeys(ctx, slot, from, to, 100); err != nil {
			return err
		}
		// The new owner first: its view counts from then on. The old one refuses while it has keys.
		if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID); err != nil {
			return err
		}
		err := from.do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		var refused redis.Error
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}
