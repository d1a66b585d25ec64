package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probe is a command of a store, sent once.
type probe struct {
	name string
	args []any
	// without is what happens without it. Empty: nothing works.
	without string
}

// probeTTL is how long a key of a probe lasts if it cannot be deleted.
const probeTTL = time.Minute

// probes are the commands that docs/operating.md lists, in an order in which the keys have a TTL from the first on. A
// right is missing if the server refuses the command; any other answer will do.
func (n *node) probes() []probe {
	prefix := "fencepost:" + n.opts.Namespace + ":"
	key, queue := prefix+"{"+n.tag+"}:token", prefix+"{"+n.tag+"}:queue"
	ms := probeTTL.Milliseconds()
	const noScript = "0000000000000000000000000000000000000000"
	return []probe{
		{"set", []any{"SET", key, "1", "PX", ms}, ""},
		{"get", []any{"GET", key}, ""},
		{"incr", []any{"INCR", key}, ""},
		{"decr", []any{"DECR", key}, ""},
		{"exists", []any{"EXISTS", key}, ""},
		{"type", []any{"TYPE", key}, ""},
		{"pttl", []any{"PTTL", key}, ""},
		{"persist", []any{"PERSIST", key}, ""},
		{"pexpire", []any{"PEXPIRE", key, ms}, ""},
		{"pexpireat", []any{"PEXPIREAT", key, n.limits.now().Add(probeTTL).UnixMilli()}, handOff},
		{"mget", []any{"MGET", key, queue}, "many leases are asked for one by one"},
		{"zadd", []any{"ZADD", queue, 1, "probe"}, ""},
		{"zrank", []any{"ZRANK", queue, "probe"}, ""},
		{"zscore", []any{"ZSCORE", queue, "probe"}, ""},
		{"zrange", []any{"ZRANGE", queue, 0, 0}, ""},
		{"zrem", []any{"ZREM", queue, "probe"}, ""},
		{"time", []any{"TIME"}, ""},
		{"info", []any{"INFO", "server"}, handOff},
		{"eval", []any{"EVAL", "return 1", 1, key}, ""},
		{"evalsha", []any{"EVALSHA", noScript, 1, key}, ""},
		{
			"publish",
			[]any{"PUBLISH", prefix + "wake:" + n.tag, ""},
			"waiters find out by themselves that a lease is free, late",
		},
		{"del", []any{"DEL", key, queue}, ""},
	}
}

const handOff = "a release takes another round trip to hand a lease on"

// rightsHint says where the rights are written down.
const rightsHint = `grant what docs/operating.md lists in "Rights", with the keys ~fencepost:%s:* (ACL SETUSER)`

// rights sends each command that a store sends, and sees which of them the server refuses.
func (n *node) rights(ctx context.Context) ([]finding, error) {
	if n.tag == "" {
		return skipped("", "no key was found that belongs to this node")
	}
	probes := n.probes()
	answers := make([]*redis.Cmd, len(probes))
	_, err := n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, probe := range probes {
			answers[i] = p.Do(ctx, probe.args...)
		}
		return nil
	})
	if err != nil && !answered(err) {
		return nil, err // the other commands got no answer either
	}
	var needed, useful, losses []string
	var words error
	refuse := func(name, without string, err error) {
		words = err
		if without == "" {
			needed = append(needed, name)
			return
		}
		useful = append(useful, name)
		if !slices.Contains(losses, without) {
			losses = append(losses, without)
		}
	}
	for i, probe := range probes {
		switch err := answers[i].Err(); {
		case notAllowed(err):
			refuse(probe.name, probe.without, err)
		case err != nil && !answered(err):
			return nil, err
		}
	}
	switch err := n.subscribe(ctx); {
	case notAllowed(err):
		refuse("subscribe", "waiters ask again every PollEvery", err)
	case err != nil:
		return nil, err
	}
	do := fmt.Sprintf(rightsHint, n.opts.Namespace)
	switch {
	case len(needed) > 0:
		return fault(do, "refused: %s (%v)", strings.Join(append(needed, useful...), ", "), words)
	case len(useful) > 0:
		return warning(do, "refused: %s: %s", strings.Join(useful, ", "), strings.Join(losses, "; "))
	}
	return fine("each command that a store sends is allowed")
}

// answered reports whether an error is the server's answer. A connection that broke says nothing about rights.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// subscribe listens on a channel of the namespace for a moment.
func (n *node) subscribe(ctx context.Context) (err error) {
	sub := n.client.Subscribe(ctx, "fencepost:"+n.opts.Namespace+":wake:"+n.tag)
	defer func() { _ = sub.Close() }() // its connection ends
	_, err = sub.Receive(ctx)
	return err
}

// otherRights looks whether this user may do what no store needs.
func (n *node) otherRights(ctx context.Context) ([]finding, error) {
	var may []string
	for what, args := range map[string][]any{
		"read keys that are not of the namespace": {"EXISTS", "fencepost-doctor:{" + n.tag + "}"},
		"use CONFIG": {"CONFIG", "GET", "maxmemory"},
		"use ACL":    {"ACL", "WHOAMI"},
	} {
		err := n.client.Do(ctx, args...).Err()
		switch {
		case err == nil:
			may = append(may, what)
		case !notAllowed(err):
			return nil, err
		}
	}
	slices.Sort(may)
	if len(may) > 0 {
		return warning("let services log in as a user of their own, with the rights that docs/operating.md lists",
			"this user may %s", strings.Join(may, ", "))
	}
	return fine("this user is kept to the keys of the namespace, and may not administer the server")
}

// password asks once more without a user and a password.
func (n *node) password(ctx context.Context) ([]finding, error) {
	options := *n.client.Options()
	options.Username, options.Password, options.PoolSize, options.MaxRetries = "", "", 1, -1
	options.CredentialsProvider, options.CredentialsProviderContext, options.StreamingCredentialsProvider = nil, nil, nil
	nobody := redis.NewClient(&options)
	defer func() { _ = nobody.Close() }() // it holds nothing
	switch err := nobody.Ping(ctx).Err(); {
	case err == nil:
		return warning("set a password (requirepass), or users (ACL SETUSER, and default off)",
			"the server asks nobody for a password: whoever reaches it may take leases away")
	case !answered(err):
		return nil, err
	}
	return fine("it asks for a password")
}
