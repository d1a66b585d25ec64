package lease

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// Inspector looks at the leases of a prefix without holding any, for the tools of operators. It is safe for concurrent
// use and need not be closed. The caller keeps ownership of the clients.
type Inspector struct {
	nodes  []*scripts
	prefix string
	idle   time.Duration
}

// NewInspector returns an Inspector over one client, or over those of a quorum. Of the options only Prefix and
// CounterIdle have an effect. It sends nothing. It returns ErrInvalid for what [NewManager] would refuse.
func NewInspector(clients []redis.UniversalClient, opts *Options) (*Inspector, error) {
	v := opts.withDefaults()
	if err := v.validate(); err != nil {
		return nil, err
	}
	if len(clients) == 0 {
		return nil, invalidf("there is no client")
	}
	i := &Inspector{prefix: v.Prefix, idle: v.CounterIdle}
	for _, client := range clients {
		if err := checkClient(client); err != nil {
			return nil, err
		}
		i.nodes = append(i.nodes, newScripts(client, v))
	}
	return i, nil
}

// Standing is what a lease key says.
type Standing string

// The standings.
const (
	Free     Standing = "free"
	Held     Standing = "held"
	Reserved Standing = "reserved" // released, and kept for the first waiter
	Minority Standing = "minority" // of a quorum: some servers have a share, but no holder has a majority
	Foreign  Standing = "bad key"  // not written by this library, or without a TTL
)

// Sight is what Redis says about a resource. It tells no secret.
type Sight struct {
	Resource string
	Standing Standing
	Label    string        // of the holder
	Token    token.Token   // of the lease; 0 if it is free
	Left     time.Duration // until the lease ends, unless it is renewed
	Waiting  int           // how many wait; those beyond 1,000 are not counted. A quorum has no queue
	Counter  token.Token   // the last token issued; 0 if there is no counter

	found func() []found // by node; a function, because fmt prints everything else
}

// found is what one node's lease key says.
type found struct {
	standing Standing
	secret   string
	label    string
	token    token.Token
	left     time.Duration
	waiting  int
	counter  token.Token
}

// countAtMost bounds how many waiters are counted.
const countAtMost = 1000

// Look returns what Redis says about resources, in their order. A server of a quorum that does not answer counts as one
// without shares, as long as a majority answers. Errors are ErrInvalid and ErrUnavailable. ctx bounds the call.
func (i *Inspector) Look(ctx context.Context, resources ...string) ([]Sight, error) {
	for _, r := range resources {
		if err := checkResource(r); err != nil {
			return nil, err
		}
	}
	all := make([][]found, len(resources))
	for r := range all {
		all[r] = make([]found, len(i.nodes))
	}
	var silent []error
	for n, node := range i.nodes {
		seen, err := i.lookAt(ctx, node.client, resources)
		if err != nil {
			silent = append(silent, err)
			continue
		}
		for r := range seen {
			all[r][n] = seen[r]
		}
	}
	if 2*len(silent) >= len(i.nodes) && len(silent) > 0 {
		return nil, interpret(ctx, "look at", i.prefix, errors.Join(silent...))
	}
	sights := make([]Sight, len(resources))
	for r, name := range resources {
		sights[r] = sum(name, all[r])
	}
	return sights, nil
}

func (i *Inspector) lookAt(ctx context.Context, client redis.UniversalClient, resources []string) ([]found, error) {
	type replies struct {
		lease, counter *redis.StringCmd
		left           *redis.DurationCmd
		queue          *redis.StringSliceCmd
	}
	all := make([]replies, len(resources))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for r, name := range resources {
			k := keysOf(i.prefix, name)
			all[r] = replies{
				p.Get(ctx, k.lease), p.Get(ctx, k.counter), p.PTTL(ctx, k.lease),
				p.ZRange(ctx, k.queue, 0, countAtMost-1),
			}
		}
		return nil
	})
	seen := make([]found, len(resources))
	for r, reply := range all {
		for _, err := range []error{reply.lease.Err(), reply.counter.Err(), reply.left.Err(), reply.queue.Err()} {
			if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return nil, err
			}
		}
		seen[r] = parseLease(reply.lease.Val(), reply.left.Val())
		if redis.HasErrorPrefix(reply.lease.Err(), "WRONGTYPE") {
			seen[r].standing = Foreign
		}
		seen[r].waiting = len(reply.queue.Val())
		seen[r].counter, _ = token.Parse(reply.counter.Val()) // any other value counts as 0
	}
	return seen, nil
}

// PTTL's answers about a key that is not there, and about one that never expires.
const (
	noKey time.Duration = -2
	noTTL time.Duration = -1
)

// parseLease reads the value of a lease key; see acquire.lua for its forms. left was asked for after the value, and the
// lease may have ended in between.
func parseLease(value string, left time.Duration) found {
	m := regexp.MustCompile(`(?s)^([0-9a-f]{32}) ([1-9][0-9]*) (.*)$`).FindStringSubmatch(value)
	switch {
	case value == "" || left == noKey:
		return found{standing: Free}
	case left == noTTL:
		return found{standing: Foreign}
	case m != nil:
		tok, err := token.Parse(m[2])
		if err != nil {
			return found{standing: Foreign}
		}
		return found{standing: Held, secret: m[1], token: tok, label: m[3], left: left}
	case regexp.MustCompile(`^[~?][0-9a-f]{32}( [0-9]+ [0-9]+)?$`).MatchString(value):
		return found{standing: Reserved, left: left}
	}
	return found{standing: Foreign}
}

// sum makes one sight of what the nodes have. The lease is that of the nonce that most nodes have; it lasts for as long
// as a majority has it.
func sum(resource string, nodes []found) Sight {
	s := Sight{Resource: resource, Standing: Free, found: func() []found { return nodes }}
	shares := map[string][]found{}
	for _, f := range nodes {
		s.Waiting, s.Counter = max(s.Waiting, f.waiting), max(s.Counter, f.counter)
		if f.standing != Held && f.standing != Free && f.standing != "" {
			s.Standing, s.Left = f.standing, f.left
		}
		if f.standing == Held {
			shares[f.secret] = append(shares[f.secret], f)
		}
	}
	most := 0
	for _, of := range shares {
		if len(of) <= most {
			continue
		}
		most = len(of)
		slices.SortFunc(of, func(a, b found) int { return int(b.left - a.left) })
		s.Label, s.Token, s.Standing = of[0].label, 0, Held
		for _, f := range of {
			s.Token = max(s.Token, f.token)
		}
		s.Left = of[min(len(of)-1, len(nodes)/2)].left
		if len(of) <= len(nodes)/2 {
			s.Standing = Minority
		}
	}
	return s
}

// Scan returns the names of resources that somebody has a lease of, sorted, by SCAN: a lease that is there all the time
// is found, one that comes or goes meanwhile may not be. It stops after limit names; more says that it did. The user of
// Redis needs the right to SCAN. Errors: ErrUnavailable. ctx bounds the call.
func (i *Inspector) Scan(ctx context.Context, limit int) (resources []string, more bool, err error) {
	names := map[string]bool{}
	answered := 0
	for _, node := range i.nodes {
		if scanned := i.scanNode(ctx, node.client, limit, names); scanned != nil {
			err = errors.Join(err, scanned)
			continue
		}
		answered++
	}
	if 2*answered <= len(i.nodes) {
		return nil, false, interpret(ctx, "scan", i.prefix, err)
	}
	for name := range names {
		resources = append(resources, name)
	}
	slices.Sort(resources)
	if len(resources) > limit {
		return resources[:limit], true, nil
	}
	return resources, false, nil
}

// scanNode adds the names on one server, or on each primary of a cluster, one after the other. It adds at least one
// more than the limit if there are more.
func (i *Inspector) scanNode(ctx context.Context, client redis.UniversalClient, limit int,
	names map[string]bool,
) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		turn := make(chan struct{}, 1) // ForEachMaster calls from several goroutines
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			turn <- struct{}{}
			defer func() { <-turn }()
			return i.scanServer(ctx, node, limit, names)
		})
	}
	return i.scanServer(ctx, client, limit, names)
}

func (i *Inspector) scanServer(ctx context.Context, server redis.Cmdable, limit int, names map[string]bool) error {
	const perCall = 1000
	before, after := i.prefix+":{", "}:lease"
	pattern := regexp.MustCompile(`[*?\[\]\\]`).ReplaceAllString(before, `\$0`) + "*" + after
	for cursor := uint64(0); ; {
		keys, next, err := server.Scan(ctx, cursor, pattern, perCall).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if name, ok := decode(strings.TrimSuffix(strings.TrimPrefix(key, before), after)); ok {
				names[name] = true
			}
		}
		if cursor = next; cursor == 0 || len(names) > limit {
			return nil
		}
	}
}

// decode is the inverse of encode. It refuses what encode does not write.
func decode(text string) (string, bool) {
	var b strings.Builder
	for at := 0; at < len(text); at++ {
		if text[at] != '%' {
			b.WriteByte(text[at])
			continue
		}
		var c byte
		if at+3 > len(text) {
			return "", false
		}
		if _, err := fmt.Sscanf(text[at+1:at+3], "%02X", &c); err != nil {
			return "", false
		}
		b.WriteByte(c)
		at += 2
	}
	return b.String(), encode(b.String()) == text
}
