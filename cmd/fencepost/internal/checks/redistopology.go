package checks

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/servers"
)

// fewestSentinels is how many sentinels it takes to outvote one.
const fewestSentinels = 3

// topology looks at what takes over when a server fails.
func (r *run) topology(ctx context.Context, name, address string, client redis.UniversalClient, nodes []*node) {
	c := check{name: "topology"}
	sentinels, master, _ := servers.OpenSentinels(address) // an address that does not parse has not been opened
	defer func() {
		for _, s := range sentinels {
			_ = s.Close() // nothing is left to be told
		}
	}()
	cluster, isCluster := client.(*redis.ClusterClient)
	switch {
	case isCluster:
		c.look = func(ctx context.Context) ([]finding, error) { return clusterState(ctx, cluster, len(nodes)) }
	case len(sentinels) > 0:
		c.look = func(ctx context.Context) ([]finding, error) { return sentinelState(ctx, sentinels, master) }
	default:
		c.look = nodes[0].watched
	}
	r.all(ctx, name, []check{c})
}

// sentinelState asks each sentinel whether a failover would be possible.
func sentinelState(ctx context.Context, sentinels []*redis.SentinelClient, master string) ([]finding, error) {
	agree, known := 0, 0
	var last error
	for _, s := range sentinels {
		if err := s.CkQuorum(ctx, master).Err(); err != nil {
			last = err
			continue
		}
		agree++
		others, err := s.Sentinels(ctx, master).Result()
		if err == nil {
			known = max(known, len(others)+1)
		}
	}
	const do = "start the sentinels that are down: SENTINEL CKQUORUM says what is missing"
	switch {
	case notAllowed(last) && agree == 0:
		return nil, last
	case agree == 0:
		return fault(do, "no sentinel could fail over: %v", last)
	case last != nil:
		return warning(do, "of %d sentinels %d could not fail over: %v", len(sentinels), len(sentinels)-agree, last)
	case known < fewestSentinels:
		return warning("run three sentinels or more, on hosts of their own",
			"%d sentinels watch the primary: when one is down, nobody fails over", known)
	}
	return fine("%d sentinels watch the primary, and could fail over", known)
}

// clusterState asks the cluster whether all slots are served.
func clusterState(ctx context.Context, cluster *redis.ClusterClient, primaries int) ([]finding, error) {
	text, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		return nil, err
	}
	info := fields(text)
	switch {
	case info["cluster_state"] != "ok":
		return fault("CLUSTER INFO and CLUSTER NODES say which slots and nodes",
			"the state of the cluster is %s: resources whose slots nobody serves get no lease", info["cluster_state"])
	case info["cluster_slots_pfail"] != "0" || info["cluster_slots_fail"] != "0":
		return warning("CLUSTER NODES says which nodes", "some slots are served by nodes that others cannot reach")
	}
	return fine("a cluster of %d primaries serves all slots", primaries)
}

// watched looks whether sentinels watch a server that is addressed by its own name: then nobody follows a failover.
func (n *node) watched(ctx context.Context) ([]finding, error) {
	const channel = "__sentinel__:hello" // on which sentinels find each other
	listening, err := n.client.PubSubNumSub(ctx, channel).Result()
	switch {
	case err != nil:
		return nil, err
	case listening[channel] > 0:
		return warning("name the sentinels: redis+sentinel://HOST,HOST/?master=NAME",
			"%d sentinels watch this server, and the address does not name them: after a failover it leads to the old "+
				"primary", listening[channel])
	}
	return fine("a single server: %s", nextBest(n.many))
}

func nextBest(many bool) string {
	if many {
		return "the others of the quorum go on without it"
	}
	return "nothing takes over from it"
}
