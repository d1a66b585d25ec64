package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// busPatience is how long one message may take from node to node before it is sent again.
const busPatience = 50 * time.Millisecond

// passesMessages verifies that messages published on any node reach the subscribers of every other node.
//
// Nodes that know each other and call the cluster whole may still lose messages: Valkey 8.1 closes a link of its
// bus whose first message is a short one of PUBLISH, and the message goes with it ("Closing link for node … that
// sent a lightweight message").
func (c *Cluster) passesMessages(ctx context.Context) error {
	for _, to := range c.Nodes {
		if err := to.hears(ctx, c.Nodes); err != nil {
			return fmt.Errorf("node %d: %w", to.number, err)
		}
	}
	return nil
}

// hears subscribes on a node, and lets all nodes publish until it has received a message from each.
func (n *Node) hears(ctx context.Context, all []*Node) error {
	client := n.dial()
	defer func() { _ = client.Close() }()
	channel := "fencepost-services:" + strconv.Itoa(n.number)
	sub := client.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	for _, from := range all {
		err := poll(ctx, nil, func(ctx context.Context) error {
			if err := from.do(ctx, "PUBLISH", channel, from.number); err != nil {
				return err
			}
			return receive(ctx, sub, strconv.Itoa(from.number))
		})
		if err != nil {
			return fmt.Errorf("a message from node %d: %w", from.number, err)
		}
	}
	return nil
}

// receive reads messages until the wanted one.
func receive(ctx context.Context, sub *redis.PubSub, wanted string) error {
	for {
		event, err := sub.ReceiveTimeout(ctx, busPatience)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return errors.New("not received")
		}
		if err != nil {
			return err
		}
		if message, ok := event.(*redis.Message); ok && message.Payload == wanted {
			return nil
		}
	}
}
