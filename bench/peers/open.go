package peers

import (
	"context"
	"errors"
	"fmt"
)

// OpenApart opens n clients, each with connections of its own, as if in n processes.
func OpenApart(ctx context.Context, p Peer, n int) ([]Client, error) {
	var clients []Client
	for range n {
		c, err := p.Open(ctx, 1)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open %s: %w", p.Name, err), CloseAll(clients))
		}
		clients = append(clients, c...)
	}
	return clients, nil
}

// OpenTogether opens n clients that share connections, as in one process.
func OpenTogether(ctx context.Context, p Peer, n int) ([]Client, error) {
	clients, err := p.Open(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.Name, err)
	}
	return clients, nil
}

// CloseAll closes all clients.
func CloseAll(clients []Client) error {
	errs := make([]error, len(clients))
	for i, c := range clients {
		errs[i] = c.Close()
	}
	return errors.Join(errs...)
}
