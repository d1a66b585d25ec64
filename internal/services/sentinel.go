package services

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentinelOptions configures a primary behind sentinels. Nil means the defaults.
type SentinelOptions struct {
	// DownAfter is how long a server may be silent before a sentinel considers it down. Default 500 ms.
	DownAfter time.Duration
	// Args are additional arguments for primary and replica. Default none.
	Args []string
}

const (
	sentinels      = 3
	sentinelQuorum = 2
	// sentinelMaster is the sentinels' name for the primary.
	sentinelMaster = "fencepost"
)

// Sentinel is a primary with a replica, watched by three sentinels with a quorum of two.
type Sentinel struct {
	host *hostProcess
	// Primary and Replica are the roles at the start.
	Primary, Replica *Node
	// Sentinels watch them.
	Sentinels []*Node
	// Description describes the servers for people, as in [Services].
	Description string
}

// followAtOnce saves a replica the five seconds that a primary waits for others to join.
func followAtOnce() []string {
	return []string{"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"}
}

// StartSentinel starts a primary, a replica and three sentinels from the installed redis-server (or valkey-server).
// Like [StartCluster] it uses no containers. It returns once the replica is in sync and each sentinel knows it and the
// other sentinels, so that a failover can begin at once. Ctx bounds the start only. The caller must Close the result.
//
// Errors: [ErrNotInstalled] if the program is not installed.
func StartSentinel(ctx context.Context, opts *SentinelOptions) (*Sentinel, error) {
	o := SentinelOptions{}
	if opts != nil {
		o = *opts
	}
	if o.DownAfter == 0 {
		o.DownAfter = 500 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	spec := nodeSpec{Args: append(followAtOnce(), o.Args...)}
	h, nodes, description, err := startNodes(ctx, nil, 0, spec, spec)
	if err != nil {
		return nil, err
	}
	s := &Sentinel{host: h, Primary: nodes[0], Replica: nodes[1], Description: description}
	if err := s.watch(ctx, o.DownAfter); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up sentinels: %w", err), s.Close())
	}
	return s, nil
}

// watch makes the replica follow and starts the sentinels.
func (s *Sentinel) watch(ctx context.Context, downAfter time.Duration) error {
	if err := follow(ctx, s.Primary, s.Replica); err != nil {
		return err
	}
	spec := nodeSpec{Sentinel: fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]s %[3]d\n"+
		"sentinel down-after-milliseconds %[1]s %[4]d\nsentinel failover-timeout %[1]s 5000\n",
		sentinelMaster, s.Primary.port(), sentinelQuorum, downAfter.Milliseconds())}
	_, nodes, _, err := startNodes(ctx, s.host, 2, spec, spec, spec)
	if err != nil {
		return err
	}
	s.Sentinels = nodes
	return s.eachSentinel(ctx, func(facts map[string]string) error {
		if facts["num-slaves"] != "1" || facts["num-other-sentinels"] != strconv.Itoa(sentinels-1) ||
			facts["flags"] != "master" {
			return fmt.Errorf("it knows %s replicas and %s other sentinels of a %q",
				facts["num-slaves"], facts["num-other-sentinels"], facts["flags"])
		}
		return nil
	})
}

// eachSentinel waits until every sentinel reports the wanted facts about the primary.
func (s *Sentinel) eachSentinel(ctx context.Context, wanted func(facts map[string]string) error) error {
	for _, n := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
		err := poll(ctx, nil, func(ctx context.Context) error {
			facts, err := c.Master(ctx, sentinelMaster).Result()
			if err != nil {
				return err
			}
			return wanted(facts)
		})
		if err := errors.Join(err, c.Close()); err != nil {
			return fmt.Errorf("sentinel %d: %w", n.number, err)
		}
	}
	return nil
}

// Close stops all servers and removes their data. A second call does nothing.
func (s *Sentinel) Close() error { return s.host.close() }

// Master is the name by which a client asks the sentinels for the primary.
func (s *Sentinel) Master() string { return sentinelMaster }

// Addrs returns the addresses of the sentinels, for a client.
func (s *Sentinel) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, n := range s.Sentinels {
		addrs[i] = n.Addr()
	}
	return addrs
}

// HoldBack makes the replica lag: it keeps what the primary has now, and receives nothing later, until the primary is
// restarted. A failover then loses the later writes. It should follow within a few seconds: sentinels promote no
// replica that has been cut off for much longer than the primary has been down.
func (s *Sentinel) HoldBack(ctx context.Context) error { return holdBack(ctx, s.Primary, s.Replica) }

// Promoted waits until all sentinels name the replica as the primary and it accepts writes.
func (s *Sentinel) Promoted(ctx context.Context) error {
	err := s.eachSentinel(ctx, func(facts map[string]string) error {
		if facts["port"] != s.Replica.port() {
			return fmt.Errorf("it still names port %s (%s)", facts["port"], facts["flags"])
		}
		return nil
	})
	if err != nil {
		return err
	}
	return poll(ctx, nil, func(ctx context.Context) error {
		facts, err := s.Replica.replication(ctx)
		if err == nil && facts["role"] != "master" {
			err = errors.New("the replica is still one")
		}
		return err
	})
}
