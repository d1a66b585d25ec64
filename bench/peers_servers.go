package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/bench/peers"
	"github.com/fencepost-pg/fencepost/internal/services"
)

// nodes is how many independent servers a quorum has.
const nodes = 5

// servers are those of one run.
type servers struct {
	shared *services.Services
	nodes  []*services.Redis
	prefix string
}

func startServers(ctx context.Context) (*servers, error) {
	shared, err := services.Start(ctx, &services.Options{Durable: true})
	if err != nil {
		return nil, err
	}
	s := &servers{shared: shared, prefix: "fencepost-peers-" + strings.ToLower(rand.Text()[:12])}
	for range nodes {
		node, err := services.StartRedis(ctx)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.nodes = append(s.nodes, node)
	}
	return s, nil
}

// close stops what was started. A server that was there before is left as it was.
func (s *servers) close() error {
	err := s.removeKeys()
	for _, node := range s.nodes {
		err = errors.Join(err, node.Close())
	}
	return errors.Join(err, s.shared.Close())
}

func (s *servers) peers() peers.Servers {
	p := peers.Servers{PostgresURL: s.shared.PostgresURL, RedisURL: s.shared.RedisURL, Prefix: s.prefix}
	for _, node := range s.nodes {
		p.NodeURLs = append(p.NodeURLs, node.URL())
	}
	return p
}

// removeKeys removes this run's keys, also after an interruption. Advisory locks end with their sessions.
func (s *servers) removeKeys() error {
	opts, err := redis.ParseURL(s.shared.RedisURL)
	if err != nil {
		return errors.New("the Redis address cannot be parsed") // the parser's words may hold a password
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpPatience)
	defer cancel()
	client := redis.NewClient(opts)
	return errors.Join(removeKeys(ctx, client, s.prefix+":*"), removeKeys(ctx, client, "fencepost:"+s.prefix+":*"),
		client.Close())
}
