package checks_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/checks"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/testenv"
	"github.com/fencepost-pg/fencepost/lease"
)

// over are the options for one Redis, or several.
func over(addresses ...string) *checks.Options {
	return &checks.Options{Redis: addresses, Namespace: "billing"}
}

// set changes settings of a running server, and user makes the one that docs/operating.md describes, less some rights.
func set(t *testing.T, client redis.UniversalClient, settings ...string) {
	t.Helper()
	for i := 0; i < len(settings); i += 2 {
		if err := client.ConfigSet(t.Context(), settings[i], settings[i+1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func user(t *testing.T, client redis.UniversalClient, addr string, further ...string) (address string) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER billing .*$`).FindString(string(text))
	var args []any
	channels := testenv.RedisAtLeast(t, client, "6.2")
	for _, word := range append(strings.Fields(line), further...) {
		if word == ">secret" {
			word = ">" + password
		}
		if channels || word != "resetchannels" && word[0] != '&' {
			args = append(args, word)
		}
	}
	if err := client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://billing:" + password + "@" + addr
}

// Each setting of the server, once as recommended and once not.
func TestSettingsOfARedis(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	client := testenv.RedisOn(t, server.URL())
	for _, c := range []struct {
		settings []string
		check    string
		level    checks.Level
		words    string
	}{
		{nil, "version", checks.OK, ""},
		{nil, "role", checks.OK, "a primary"},
		{nil, "topology", checks.OK, "a single server"},
		{[]string{"appendonly", "no", "save", ""}, "persistence", checks.Warning, "keeps nothing"},
		{[]string{"save", "60 1000"}, "persistence", checks.Warning, "no append-only file"},
		{[]string{"appendonly", "yes", "appendfsync", "no"}, "persistence", checks.Warning, "when the system likes"},
		{[]string{"appendfsync", "everysec"}, "persistence", checks.OK, "append-only file"},
		{nil, "eviction", checks.OK, "noeviction"},
		{[]string{"maxmemory-policy", "volatile-lru"}, "eviction", checks.Warning, "volatile-lru"},
		{[]string{"maxmemory", "1gb"}, "eviction", checks.Fault, "evicts leases"},
		{[]string{"maxmemory-policy", "noeviction"}, "eviction", checks.OK, ""},
		{nil, "replicas", checks.Warning, "no replica"},
		{[]string{"min-replicas-to-write", "1"}, "replicas", checks.Fault, "below min-replicas-to-write"},
		{[]string{"min-replicas-to-write", "0"}, "password", checks.Warning, "asks nobody"},
		{nil, "other_rights", checks.Warning, "read keys that are not of the namespace, use ACL, use CONFIG"},
		{nil, "rights", checks.OK, "each command"},
		{nil, "latency", checks.OK, "round trips"},
		{nil, "clock", checks.OK, "off this host's"},
	} {
		set(t, client, c.settings...)
		want(t, look(t, over(server.URL())), c.check, c.level, c.words)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// The user that docs/operating.md describes, and each of its rights taken away.
func TestRightsOfAUser(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	set(t, testenv.RedisOn(t, server.URL()), "requirepass", password)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: password})
	t.Cleanup(func() { _ = admin.Close() })
	got := look(t, over(user(t, admin, server.Addr())))
	for name, words := range map[string]string{
		"rights": "each command", "other_rights": "is kept to",
		"password": "asks for a password",
	} {
		want(t, got, name, checks.OK, words)
	}
	want(t, got, "info", checks.OK, "CONFIG GET is refused")
	want(t, got, "persistence", checks.Warning, "or what the provider has")
	for command, level := range map[string]checks.Level{
		"set": checks.Fault, "get": checks.Fault, "incr": checks.Fault, "decr": checks.Fault, "exists": checks.Fault,
		"type": checks.Fault,
		"pttl": checks.Fault, "persist": checks.Fault, "pexpire": checks.Fault, "zadd": checks.Fault, "zrank": checks.Fault,
		"zscore": checks.Fault, "zrange": checks.Fault, "zrem": checks.Fault, "time": checks.Fault, "eval": checks.Fault,
		"evalsha": checks.Fault, "del": checks.Fault,
		"pexpireat": checks.Warning, "mget": checks.Warning, "info": checks.Warning, "publish": checks.Warning,
		"subscribe": checks.Warning,
	} {
		got := look(t, over(user(t, admin, server.Addr(), "-"+command)))
		want(t, got, "rights", level, "refused: "+command)
		if command == "info" {
			want(t, got, "version", checks.Skipped, "look at these first: info")
			want(t, got, "info", checks.Skipped, "NOPERM")
		}
	}
	want(t, look(t, over(user(t, admin, server.Addr(), "resetkeys", "~other:*"))), "rights", checks.Fault,
		"~fencepost:billing:*")
}

// A managed server that does not know CONFIG.
func TestAManagedRedisIsLookedAtAsFarAsItAnswers(t *testing.T) {
	t.Parallel()
	got := look(t, over(testenv.OwnRedis(t, "--rename-command", "CONFIG", "").URL()))
	want(t, got, "info", checks.OK, "CONFIG GET is refused")
	want(t, got, "eviction", checks.OK, "")
}

// A network that is slow, and a clock that is wrong.
func TestAFarRedisAndAWrongClock(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	proxy := faults.NewProxy(t, server.Addr())
	proxy.Latency(30 * time.Millisecond)
	far := over(proxy.URL(t, server.URL()))
	far.TTL = 60 * time.Millisecond
	want(t, look(t, far), "latency", checks.Fault, "pause between two renewals")
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	want(t, look(t, checks.Edited(*over(server.URL()), checks.Limits{Now: ahead})), "clock", checks.Warning,
		"1h0m0s behind this host's")
}

func TestReplicasAndSentinels(t *testing.T) {
	t.Parallel()
	s := testenv.Sentinel(t, nil)
	got := look(t, over("redis+sentinel://"+strings.Join(s.Addrs(), ",")+"/?master="+s.Master()))
	want(t, got, "topology", checks.OK, "3 sentinels watch")
	want(t, got, "replicas", checks.OK, "1 replicas")
	got = look(t, over(s.Primary.URL()))
	want(t, got, "topology", checks.Warning, "the address does not name them")
	want(t, look(t, over(s.Replica.URL())), "role", checks.Fault, "a replica answers")
	if err := s.Sentinels[2].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = look(t, over("redis+sentinel://"+strings.Join(s.Addrs(), ",")+"/?master="+s.Master()))
	want(t, got, "topology", checks.Warning, "of 3 sentinels 1 could not")
}

func TestAClusterAndItsNodes(t *testing.T) {
	t.Parallel()
	c := testenv.Cluster(t, nil)
	got := look(t, over("redis://"+c.Addrs()[0]))
	want(t, got, "topology", checks.OK, "a cluster of 3 primaries")
	rights := 0
	for _, r := range got {
		if r.Name == "rights" && r.Level == checks.OK {
			rights++
		}
	}
	if rights != 3 {
		t.Errorf("the rights of %d nodes were tried: %+v", rights, got)
	}
}

// A quorum whose servers are two, one of them named twice, and one of which is down.
func TestAQuorum(t *testing.T) {
	t.Parallel()
	a, b, c := testenv.OwnRedis(t), testenv.OwnRedis(t), testenv.OwnRedis(t)
	got := look(t, over(a.URL(), b.URL(), c.URL()))
	want(t, got, "replicas", checks.OK, "no replica")
	for _, r := range got {
		if r.Name == "distinct" {
			t.Errorf("%+v", r)
		}
	}
	want(t, look(t, over(a.URL(), b.URL(), a.URL())), "distinct", checks.Fault, "the same server as redis 1")
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, look(t, over(a.URL(), b.URL(), c.URL())), "connect", checks.Fault, "does not answer")
}

// Counters that are gone, right, and too low.
func TestCountersBelowTheirFences(t *testing.T) {
	t.Parallel()
	address, redisURL := testenv.Database(t), testenv.OwnRedis(t).URL()
	opts := over(redisURL)
	opts.HasDatabase, opts.Database = true, address
	want(t, look(t, opts), "counters", checks.OK, "of 0 fences")
	execute(t, testenv.PoolOn(t, address), "SELECT fencepost.claim('billing:r', 7, gen_random_uuid())")
	want(t, look(t, opts), "counters", checks.Warning, "missing")
	client := testenv.RedisOn(t, redisURL)
	for counter, level := range map[string]checks.Level{"7": checks.OK, "6": checks.Warning} {
		if err := client.Set(t.Context(), "fencepost:billing:{r}:token", counter, lease.MaxTTL).Err(); err != nil {
			t.Fatal(err)
		}
		want(t, look(t, opts), "counters", level, "below")
	}
}
