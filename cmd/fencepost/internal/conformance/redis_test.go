package conformance_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/conformance"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// optional are the checks that an ordinary server may leave out.
func optional() map[string]conformance.Verdict {
	return map[string]conformance.Verdict{"appendonly": conformance.NotTried}
}

func TestARedisHolds(t *testing.T) {
	t.Parallel()
	client := testenv.RedisOn(t, testenv.OwnRedis(t).URL())
	got := verdicts(t, &conformance.Options{Redis: client})
	want(t, got, conformance.OK, optional())
	if left := keys(t, client, "conformance"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAClusterHolds(t *testing.T) {
	t.Parallel()
	client := testenv.ClusterClient(t, testenv.Cluster(t, nil), nil)
	got := verdicts(t, &conformance.Options{Redis: client})
	some := optional()
	some["replicas"] = conformance.NotTried
	want(t, got, conformance.OK, some)
}

// The user that the documentation describes has enough rights, except for WAIT.
func TestTheDocumentedUserIsEnough(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	client := as(t, server.Addr(), nil)
	got := verdicts(t, &conformance.Options{Redis: client, Namespace: "billing"})
	some := optional()
	some["replicas"] = conformance.NotTried
	want(t, got, conformance.OK, some)
	if left := keys(t, testenv.RedisOn(t, server.URL()), "billing"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// as connects as the user of docs/operating.md, with further rules of an ACL.
func as(t *testing.T, addr string, further []string) *redis.Client {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER billing .*$`).FindString(string(text))
	var args []any
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = admin.Close() }()
	channels := testenv.RedisAtLeast(t, admin, "6.2")
	for _, word := range append(strings.Fields(line), further...) {
		if channels || word != "resetchannels" && word[0] != '&' {
			args = append(args, word)
		}
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr, Username: "billing", Password: "secret", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A feature or right that is missing is found, and named in the server's own words.
func TestWhatMakesARedisUnfitIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server []string
		user   []string // nil: not as a user
		failed string
		why    string
		holds  []string
	}{
		"no scripts": {
			server: []string{"--rename-command", "EVALSHA", ""}, failed: "noscript",
			why: "unknown", holds: []string{"connect"},
		},
		"no text of scripts": {
			server: []string{"--rename-command", "EVAL", ""}, failed: "noscript",
			why: "unknown command", holds: []string{"connect"},
		},
		"no clock in scripts": {
			server: []string{"--rename-command", "TIME", ""}, failed: "told",
			holds: []string{"atomic", "grant", "counter"},
		},
		"no expiry": {server: []string{"--rename-command", "PEXPIRE", ""}, failed: "grant", holds: []string{"atomic"}},
		"no room":   {server: []string{"--maxmemory", "1"}, failed: "noscript", why: "OOM", holds: []string{"connect"}},
		"no right to listen": {
			user: []string{"-subscribe"}, failed: "told", why: "subscribe",
			holds: []string{"grant", "exclusive", "expiry"},
		},
		"no right to tell": {
			user: []string{"-publish"}, failed: "told", why: "not notified",
			holds: []string{"grant", "expiry"},
		},
		"no right to count": {user: []string{"-incr"}, failed: "grant", holds: []string{"atomic"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.OwnRedis(t, c.server...)
			opts := &conformance.Options{Redis: testenv.RedisOn(t, server.URL()), Namespace: "billing"}
			if c.user != nil {
				opts.Redis = as(t, server.Addr(), c.user)
			}
			got := verdicts(t, opts)
			if got[c.failed].Verdict != conformance.Failed {
				t.Errorf("%s is %s", c.failed, got[c.failed].Verdict)
			}
			wantWhy(t, got, c.failed, c.why)
			for _, name := range c.holds {
				if got[name].Verdict != conformance.OK {
					t.Errorf("%s is %s: %s", name, got[name].Verdict, got[name].Why)
				}
			}
			if left := keys(t, testenv.RedisOn(t, server.URL()), "billing"); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestAReplicaIsFound(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.OwnRedis(t), testenv.OwnRedis(t)
	client := testenv.RedisOn(t, replica.URL())
	host, port, _ := strings.Cut(primary.Addr(), ":")
	if err := client.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	report, err := conformance.Run(t.Context(), &conformance.Options{Redis: client})
	if report.Holds() || !strings.Contains(report.Checks[1].Why, "READONLY") {
		t.Errorf("a replica: %+v", report.Checks)
	}
	if err != nil {
		t.Errorf("nothing was made, and yet: %v", err)
	}
}

func TestWithoutARedisNothingIsTried(t *testing.T) {
	t.Parallel()
	report, _ := conformance.Run(
		context.Background(),
		&conformance.Options{Redis: testenv.RedisOn(t, "redis://127.0.0.1:1")},
	)
	if report.Holds() || report.Count(conformance.Failed) != 1 || report.Checks[0].Verdict != conformance.Failed {
		t.Errorf("no server: %+v", report.Checks)
	}
}
