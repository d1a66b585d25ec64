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

// id is what a node of a cluster is called by the others.
func (n *Node) id(ctx context.Context) (string, error) {
	c := n.dial()
	defer func() { _ = c.Close() }()
	return c.ClusterMyID(ctx).Result()
}

// knows sees that a node has met so many, itself among them, and speaks to them all.
func (n *Node) knows(ctx context.Context, count int) error {
	c := n.dial()
	defer func() { _ = c.Close() }()
	text, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	known := 0
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) >= 8 && !strings.Contains(fields[2], "handshake") && fields[7] == "connected" {
			known++
		}
	}
	if known < count {
		return fmt.Errorf("it knows %d nodes of %d", known, count)
	}
	return nil
}

// whole sees that a node takes its cluster for whole, and is in step if it is a replica.
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

// serves tells whether a node holds a slot as its primary.
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

// BeginMove tells two primaries that a slot is about to go from one to the other. Until FinishMove, each of
// its keys is where it has been moved to, and who asks at the wrong end is sent on by ASK, or told TRYAGAIN.
func (c *Cluster) BeginMove(ctx context.Context, slot int, from, to *Node) error {
	fromID, err := from.id(ctx)
	if err != nil {
		return err
	}
	toID, err := to.id(ctx)
	if err != nil {
		return err
	}
	if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID); err != nil {
		return err
	}
	return from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
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
		// A key that has gone meanwhile is answered by NOKEY.
		if err := at.Migrate(ctx, "127.0.0.1", to.port(), key, 0, askPatience).Err(); err != nil {
			return moved, fmt.Errorf("moving %q: %w", key, err)
		}
		moved++
	}
	return moved, nil
}

// FinishMove moves what keys are left and hands the slot over.
func (c *Cluster) FinishMove(ctx context.Context, slot int, from, to *Node) error {
	toID, err := to.id(ctx)
	if err != nil {
		return err
	}
	for {
		if _, err := c.MoveKeys(ctx, slot, from, to, 100); err != nil {
			return err
		}
		// The new owner first: its word counts from then on. The old one refuses while it has keys.
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
