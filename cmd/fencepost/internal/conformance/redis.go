package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/lease"
)

// keyspace is where the checks of Redis work: resources of random names, in a namespace that this user may use.
type keyspace struct {
	client redis.UniversalClient
	prefix string // as a Store of the namespace has it
	run    string // begins the name of each resource
	watch  time.Duration

	mu   sync.Mutex
	used []string // keys that may be there
}

func newKeyspace(opts *Options) *keyspace {
	return &keyspace{
		client: opts.Redis, prefix: "fencepost:" + opts.Namespace, watch: opts.Watch,
		run: "conformance-" + strings.ToLower(rand.Text()[:12]),
	}
}

// resource returns a name, and registers its keys for removal at the end.
func (k *keyspace) resource(name string) string {
	name = k.run + "-" + name
	for _, key := range []string{"lease", "token", "queue"} {
		k.key(name, key)
	}
	return name
}

// key returns a key of a resource, and registers it for removal at the end.
func (k *keyspace) key(resource, key string) string {
	full := k.prefix + ":{" + resource + "}:" + key
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.used, full) {
		k.used = append(k.used, full)
	}
	return full
}

// remove deletes the keys that the checks created. It does not end with ctx, and has a time limit of its own.
func (k *keyspace) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkPatience)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.used {
		err := k.client.Del(ctx, key).Err()
		if err == nil {
			continue
		}
		if n, unknown := k.client.Exists(ctx, key).Result(); n == 0 && unknown == nil {
			continue // the key never existed: this server accepts no writes
		}
		return fmt.Errorf("not removed: DEL %s: %w", strings.Join(k.used, " "), err)
	}
	return nil
}

// manager makes a manager, as if of a process of its own.
func (k *keyspace) manager(opts lease.Options) (*lease.Manager, error) {
	opts.Prefix = k.prefix
	opts.CounterIdle = lease.MaxTTL // in case the keys are not deleted
	return lease.NewManager(k.client, &opts)
}

// checks are the checks of Redis, in the order in which they need each other.
func (k *keyspace) checks() []check {
	return []check{
		{name: "connect", claim: "it answers", try: k.connect},
		{
			name: "noscript", claim: "a script that is not known is refused as such, runs by its text, and is known then",
			needs: []string{"connect"}, try: holds(k.noScript),
		},
		{
			name: "atomic", claim: "nothing comes between the commands of a script", needs: []string{"noscript"},
			try: holds(k.atomic),
		},
		{
			name: "grant", claim: "the library's scripts run: grant, renew, reissue, release", needs: []string{"noscript"},
			try: holds(k.grant),
		},
		{
			name: "exclusive", claim: "of many who ask one holds, and each has a token of its own", needs: []string{"grant"},
			try: holds(k.exclusive),
		},
		{
			name: "together", claim: "many leases are asked for in one call, and given back in one, whoever has some of them",
			needs: []string{"grant"}, try: holds(k.together),
		},
		{
			name: "expiry", claim: "a lease ends with its TTL, and not before", needs: []string{"grant"},
			try: holds(k.expiry),
		},
		{
			name: "counter", claim: "tokens are exact up to the highest there is", needs: []string{"grant"},
			try: holds(k.counter),
		},
		{
			name: "foreign", claim: "a key of another type is told apart", needs: []string{"grant"},
			try: holds(k.foreign),
		},
		{
			name:  "told",
			claim: "a release reaches who waits: PUBLISH in a script, SUBSCRIBE, sorted sets, TIME",
			needs: []string{"grant"},
			try:   holds(k.told),
		},
		{
			name: "identity", part: "NewQuorum", claim: "INFO tells one server from another", needs: []string{"connect"},
			try: holds(k.identity),
		},
		{
			name: "replicas", part: "Durability.Replicas", claim: "WAIT counts replicas", needs: []string{"connect"},
			try: holds(k.replicas),
		},
		{
			name:  "appendonly",
			part:  "Durability.LocalAOF",
			claim: "WAITAOF waits for the append-only file",
			needs: []string{"connect"},
			try:   holds(k.appendOnly),
		},
	}
}

// connect finds out which server answers, as far as this user may ask.
func (k *keyspace) connect(ctx context.Context) (string, error) {
	if err := k.client.Ping(ctx).Err(); err != nil {
		return "", err
	}
	info, err := k.info(ctx)
	if err != nil {
		return "it does not say who it is", nil //nolint:nilerr // a right that is not needed
	}
	for _, name := range []string{"valkey_version", "dragonfly_version", "redis_version"} {
		if version := info[name]; version != "" {
			return strings.TrimSuffix(name, "_version") + " " + version, nil
		}
	}
	return "", nil
}

func (k *keyspace) info(ctx context.Context) (map[string]string, error) {
	text, err := k.client.Info(ctx, "server").Result()
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields, err
}

func (k *keyspace) identity(ctx context.Context) error {
	info, err := k.info(ctx)
	switch {
	case err != nil:
		return untriedf("INFO is not to be had (then a server that is named twice goes unnoticed): %v", err)
	case info["run_id"] == "":
		return untriedf("INFO has no run_id (then a server that is named twice goes unnoticed)")
	}
	return nil
}

// replicas asks for a confirmation by zero replicas, which comes at once.
func (k *keyspace) replicas(ctx context.Context) error {
	one, ok := k.client.(*redis.Client)
	if !ok {
		return untriedf("a confirmation is of one connection: not over a cluster")
	}
	if err := one.Do(ctx, "WAIT", 0, 10).Err(); err != nil {
		return untriedf("WAIT: %v", err)
	}
	return nil
}

func (k *keyspace) appendOnly(ctx context.Context) error {
	one, ok := k.client.(*redis.Client)
	if !ok {
		return untriedf("a confirmation is of one connection: not over a cluster")
	}
	reply, err := one.Do(ctx, "WAITAOF", 1, 0, 1000).Int64Slice()
	switch {
	case err != nil:
		return untriedf("WAITAOF: %v", err)
	case len(reply) != 2 || reply[0] < 1:
		return errors.New("the append-only file was not on disk within a second")
	}
	return nil
}
