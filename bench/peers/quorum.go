package peers

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
)

// Quorum returns those that lock on a majority of several servers, the baseline first.
func Quorum(s Servers) []Peer {
	return []Peer{
		{Name: RedsyncOfAll, Open: s.openRedsyncOfAll},
		{Name: FencepostOfAll, Open: s.openFencepostOfAll},
	}
}

// The names of the peers on several servers.
const (
	RedsyncOfAll   = "redsync, all servers"
	FencepostOfAll = "lease.Quorum"
)

func (s Servers) openFencepostOfAll(_ context.Context, goroutines int) ([]Client, error) {
	clients, err := newRedises(s.NodeURLs)
	if err != nil {
		return nil, err
	}
	universal := make([]redis.UniversalClient, len(clients))
	for i, client := range clients {
		universal[i] = client
	}
	closeClients := func() error { return closeAll(clients) }
	quorum, err := lease.NewQuorum(universal, &lease.QuorumOptions{Options: lease.Options{Prefix: s.Prefix}})
	if err != nil {
		return nil, errors.Join(err, closeClients())
	}
	return repeatLeased(goroutines, quorum, closeClients), nil
}
