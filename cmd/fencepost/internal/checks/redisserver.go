package checks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// version compares the version with those that the library supports.
func (n *node) version(context.Context) ([]finding, error) { return redisVersion(n.info) }

// redisVersion judges what a server says about itself.
func redisVersion(info map[string]string) ([]finding, error) {
	for _, maker := range []string{"valkey", "redis"} {
		text := info[maker+"_version"]
		if text == "" || info["dragonfly_version"] != "" || info["garnet_version"] != "" {
			continue
		}
		major, _, _ := strings.Cut(text, ".")
		number, err := strconv.Atoi(major)
		switch {
		case err != nil:
			return nil, fmt.Errorf("its version is %q: %w", text, errNotSaid)
		case maker == "redis" && number < 6:
			return fault("upgrade to Redis 6.2 or later, or to Valkey", "Redis %s is older than 6.0", text)
		}
		return fine("%s%s %s", strings.ToUpper(maker[:1]), maker[1:], text)
	}
	return warning(conformanceHint, "it speaks Redis's protocol, and the library has not been tried on it")
}

// role looks whether the server takes writes.
func (n *node) role(context.Context) ([]finding, error) {
	switch {
	case n.info["role"] == "slave":
		return fault("name the primary, or the sentinels: redis+sentinel://HOST,HOST/?master=NAME",
			"a replica answers: it grants nothing")
	case n.info["loading"] == "1":
		return fault("wait until it has loaded its data", "it is loading its data, and answers nothing else")
	case n.info["rdb_last_bgsave_status"] == "err":
		return fault("see its log (space on the disk?), then BGSAVE",
			"its last snapshot failed, and unless stop-writes-on-bgsave-error is no, it refuses writes")
	case n.info["role"] == "":
		return nil, errNotSaid
	}
	return fine("it is a primary")
}

// persistence looks at what a restart would lose.
func (n *node) persistence(context.Context) ([]finding, error) {
	const do = "CONFIG SET appendonly yes, appendfsync everysec, and CONFIG REWRITE"
	save, known := n.config["save"]
	switch {
	case n.info["aof_enabled"] == "":
		return nil, errNotSaid
	case n.info["aof_enabled"] == "1" && n.info["aof_last_write_status"] == "err":
		return fault("see its log: space on the disk?", "the last write to the append-only file failed")
	case n.info["aof_enabled"] == "1" && n.config["appendfsync"] == "no":
		return warning("CONFIG SET appendfsync everysec, and CONFIG REWRITE",
			"the append-only file is flushed when the system likes: a crash of the host loses about half a minute of leases")
	case n.info["aof_enabled"] == "1":
		return fine("it has an append-only file: a restart loses a second at most")
	case known && save == "":
		return warning(do, "it keeps nothing on disk: a restart loses all leases, and all counters")
	case known:
		return warning(do, "it has snapshots, and no append-only file: a restart loses the leases since the last snapshot")
	}
	return warning(do+", or what the provider has for it", "it has no append-only file: a restart loses leases and "+
		"counters")
}

// eviction looks at what happens once the memory is full.
func (n *node) eviction(context.Context) ([]finding, error) {
	policy := n.info["maxmemory_policy"]
	most, _ := strconv.ParseInt(n.info["maxmemory"], 10, 64) // without one there is no limit
	used, _ := strconv.ParseInt(n.info["used_memory"], 10, 64)
	const do = "CONFIG SET maxmemory-policy noeviction, CONFIG REWRITE, and share the server with no cache"
	switch {
	case policy == "":
		return nil, errNotSaid
	case policy != "noeviction" && most > 0:
		return fault(do, "maxmemory-policy is %s: once the memory is full, it evicts leases or counters", policy)
	case policy != "noeviction":
		return warning(do, "maxmemory-policy is %s: it would evict leases or counters, and maxmemory is not set now", policy)
	case most > 0 && used > most/10*9:
		return warning("raise maxmemory", "nine tenths of maxmemory are in use: once it is full, it grants nothing")
	}
	return fine("maxmemory-policy is noeviction")
}

// replicas looks at who would take over, and at the replicas without which writes are refused.
func (n *node) replicas(context.Context) ([]finding, error) {
	connected, err := strconv.Atoi(n.info["connected_slaves"])
	if err != nil {
		return nil, errNotSaid
	}
	good, counted := n.info["min_slaves_good_slaves"] // it is there if min-replicas-to-write is set
	fewest, known := n.config["min-replicas-to-write"]
	enough, _ := strconv.Atoi(good) // 0 if there is none
	least, _ := strconv.Atoi(fewest)
	if counted {
		least = max(least, 1)
	}
	switch {
	case enough < least:
		return fault("bring the replicas back, or CONFIG SET min-replicas-to-write 0",
			"%d replicas are in sync, below min-replicas-to-write: it grants no lease (before Redis 7 it does, and "+
				"commands are refused)", enough)
	case connected == 0 && !n.many:
		return warning("give it a replica and sentinels, or take a cluster or a quorum",
			"no replica is connected: while it is down, nobody gets a lease")
	case connected == 0:
		return fine("no replica is connected")
	}
	for i := range connected {
		if state := n.info[fmt.Sprintf("slave%d", i)]; state != "" && !strings.Contains(state, "state=online") {
			return warning("see the replica's log", "of %d replicas one is not in sync", connected)
		}
	}
	if known && least == 0 {
		return fine("%d replicas are in sync; min-replicas-to-write is 0, so a primary that was cut off goes on "+
			"granting leases that the failover loses",
			connected)
	}
	return fine("%d replicas are in sync", connected)
}
