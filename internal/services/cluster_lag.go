package services

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// holdBack cuts a replica off once it has everything its primary has, and keeps it from following again. The replica
// still answers, but it lags from then on, so its promotion loses later writes. Killing a primary alone loses nothing
// on a loopback interface, because a write reaches the replica before its client has the reply. The lag ends when the
// primary is restarted.
func holdBack(ctx context.Context, primary, replica *Node) error {
	facts, err := primary.replication(ctx)
	if err != nil {
		return err
	}
	at := facts["master_repl_offset"]
	err = poll(ctx, nil, func(ctx context.Context) error {
		facts, err := replica.replication(ctx)
		if err == nil && atoi(facts["slave_repl_offset"]) < atoi(at) {
			err = fmt.Errorf("the replica is at %q of %s", facts["slave_repl_offset"], at)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := primary.do(ctx, "ACL", "SETUSER", "default", "-psync", "-sync"); err != nil {
		return err
	}
	return poll(ctx, nil, func(ctx context.Context) error {
		if err := primary.do(ctx, "CLIENT", "KILL", "TYPE", "replica"); err != nil {
			return err
		}
		facts, err := replica.replication(ctx)
		if err == nil && facts["master_link_status"] != "down" {
			err = errors.New("the replica still follows")
		}
		return err
	})
}

// HoldBack makes a replica lag: it keeps what its primary has now, and receives nothing later, until the primary is
// restarted. A failover to it then loses the later writes.
func (c *Cluster) HoldBack(ctx context.Context, primary, replica *Node) error {
	return holdBack(ctx, primary, replica)
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}
