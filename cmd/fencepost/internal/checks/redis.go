package checks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
)

// redisServers are the Redis that is looked at: one, or those of a quorum.
type redisServers struct {
	clients []redis.UniversalClient // of the addresses that answered
	passed  bool                    // all of them did
}

func (s *redisServers) close() { _ = servers.CloseRedis(s.clients) } // nothing is left to be told

// node is one server that keeps keys.
type node struct {
	*run
	name   string
	client *redis.Client
	tag    string // makes keys that belong to this server

	info   map[string]string // what INFO says
	config map[string]string // what CONFIG GET says
	many   bool              // one of a quorum or a cluster: others take over
}

// openRedis connects to each server, and carries out the checks that need Redis alone.
func (r *run) openRedis(ctx context.Context) *redisServers {
	s := &redisServers{passed: true}
	switch {
	case r.opts.Advisory:
		return s
	case len(r.opts.Redis) == 0:
		r.add(Redis, "connect", finding{level: Skipped, found: "no Redis is named", do: "give it --redis, or --advisory"})
		return s
	}
	ids := make(map[string]string)
	for i, address := range r.opts.Redis {
		name := Redis
		if len(r.opts.Redis) > 1 {
			name = fmt.Sprintf("%s %d", Redis, i+1)
		}
		client, nodes := r.openOne(ctx, name, address)
		if client == nil {
			s.passed = false
			continue
		}
		s.clients = append(s.clients, client)
		for _, n := range nodes {
			n.many = len(r.opts.Redis) > 1
			r.all(ctx, n.name, n.checks())
			if id := n.info["run_id"]; id != "" {
				if twin, seen := ids[id]; seen {
					r.add(n.name, "distinct", finding{
						Fault, "it is the same server as " + twin + ": a quorum of it is none",
						"name another server",
					})
				}
				ids[id] = n.name
			}
		}
	}
	return s
}

// openOne connects to one address, and returns the servers that keep keys behind it. No client: it does not answer.
func (r *run) openOne(ctx context.Context, name, address string) (client redis.UniversalClient, nodes []*node) {
	var addrs []*redis.Client
	r.all(ctx, name, []check{{name: "connect", look: func(ctx context.Context) ([]finding, error) {
		ctx, cancel := context.WithTimeout(ctx, connectPatience)
		defer cancel()
		clients, err := servers.OpenRedis(ctx, []string{address})
		if err != nil {
			return fault("mend the address, the user, the network or the server", "it does not answer: %v", err)
		}
		client = clients[0]
		if addrs, err = keepers(ctx, client); err != nil {
			return nil, err
		}
		return fine("it answers")
	}}})
	if client == nil {
		return nil, nil
	}
	for _, one := range addrs {
		n := &node{run: r, name: name, client: one}
		if len(addrs) > 1 {
			n.name = name + " " + one.Options().Addr
		}
		n.tag = n.ownTag(ctx, client)
		nodes = append(nodes, n)
	}
	r.topology(ctx, name, address, client, nodes)
	return client, nodes
}

// keepers returns the clients of the servers that keep keys: the primaries of a cluster, or the one server.
func keepers(ctx context.Context, client redis.UniversalClient) (list []*redis.Client, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		single, ok := client.(*redis.Client)
		if !ok {
			return nil, errors.New("it is no single server and no cluster")
		}
		return []*redis.Client{single}, nil
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, c)
		return nil
	})
	slices.SortFunc(list, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return list, err
}

// ownTag returns a random hash tag whose keys belong to the server.
func (n *node) ownTag(ctx context.Context, client redis.UniversalClient) string {
	const tries = 1000 // a thousandth of all slots would be found
	for range tries {
		tag := "doctor-" + strings.ToLower(rand.Text()[:12])
		cluster, ok := client.(*redis.ClusterClient)
		if !ok {
			return tag
		}
		owner, err := cluster.MasterForKey(ctx, "{"+tag+"}")
		if err == nil && owner.Options().Addr == n.client.Options().Addr {
			return tag
		}
	}
	return ""
}

// checks are the checks of one server that keeps keys.
func (n *node) checks() []check {
	return []check{
		{name: "info", look: n.readInfo},
		{name: "version", needs: []string{"info"}, look: n.version},
		{name: "role", needs: []string{"info"}, look: n.role},
		{name: "persistence", needs: []string{"info"}, look: n.persistence},
		{name: "eviction", needs: []string{"info"}, look: n.eviction},
		{name: "replicas", needs: []string{"info"}, look: n.replicas},
		{name: "rights", look: n.rights},
		{name: "other_rights", look: n.otherRights},
		{name: "password", look: n.password},
		{name: "latency", look: n.latency},
		{name: "clock", look: n.clock},
	}
}

// readInfo asks the server about itself. A managed server, or the rights of an application, may not allow that.
func (n *node) readInfo(ctx context.Context) ([]finding, error) {
	text, err := n.client.Info(ctx).Result()
	if err != nil {
		return nil, err
	}
	n.info = fields(text)
	n.config = make(map[string]string)
	for _, name := range []string{"appendfsync", "save", "min-replicas-to-write", "maxmemory"} {
		values, err := n.client.ConfigGet(ctx, name).Result()
		if notAllowed(err) {
			return fine("INFO answers, and CONFIG GET is refused: what only CONFIG tells is left out")
		}
		if err != nil {
			return nil, err
		}
		for name, value := range values {
			n.config[name] = value
		}
	}
	return fine("INFO and CONFIG GET answer")
}

// fields reads INFO's lines.
func fields(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			all[name] = value
		}
	}
	return all
}
