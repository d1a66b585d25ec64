package cli_test

import (
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// conformance is what a script reads.
type conformance struct {
	Checks []struct {
		Server, Name, Claim, Part, Verdict, Why string
	}
	Promises []struct {
		Name, Claim, Standing string
		Checks                []string
	}
	Holds bool
	Error string
}

func TestConformanceOfServersThatHold(t *testing.T) {
	t.Parallel()
	servers := []string{"conformance", "--database=" + testenv.EmptyDatabase(t), "--redis=" + testenv.RedisURL(t)}
	got := run(t, servers...)
	if got.status != 0 || got.errOut != "" {
		t.Errorf("%+v", got)
	}
	for _, line := range []string{
		"ok        postgres  update ", "ok        postgres  protection ",
		"ok        redis     told ",
	} {
		if !strings.Contains(got.out, line) {
			t.Errorf("%q is not printed: %s", line, got.out)
		}
	}
	got = run(t, append(servers, "--json")...)
	found := decode[conformance](t, got)
	if got.status != 0 || !found.Holds || strings.Count(got.out, `"verdict":"ok"`) < 25 ||
		found.Checks[0].Server != "postgres" {
		t.Errorf("%+v", got)
	}
}

// If one server is given, only that one is checked, and the other is not mentioned.
func TestConformanceOfOneServer(t *testing.T) {
	t.Setenv("FENCEPOST_POSTGRES_URL", "")
	t.Setenv("FENCEPOST_REDIS_URL", testenv.RedisURL(t))
	if got := run(t, "conformance"); got.status != 0 || strings.Contains(got.out, "postgres") {
		t.Errorf("%+v", got)
	}
}

// The server's own answer decides whether the client is one for a cluster.
func TestConformanceOfACluster(t *testing.T) {
	t.Setenv("FENCEPOST_POSTGRES_URL", "")
	got := run(t, "conformance", "--redis=redis://"+testenv.Cluster(t, nil).Addrs()[0])
	if got.status != 0 || !strings.Contains(got.out, "not over a cluster") {
		t.Errorf("%+v", got)
	}
}

func TestConformanceOfServersThatDoNot(t *testing.T) {
	t.Setenv("FENCEPOST_REDIS_URL", "")
	got := run(t, "conformance", "--json", "--database="+nowhere, "--redis=redis://somebody:hunter2@127.0.0.1:1/0")
	found := decode[conformance](t, got)
	if got.status != 78 || found.Holds || found.Error == "" || found.Checks[0].Verdict != "failed" ||
		found.Checks[1].Verdict != "not tried" {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.errOut, "2 failed") || strings.Contains(got.out+got.errOut, "hunter2") {
		t.Errorf("%+v", got)
	}
	for name, args := range map[string][]string{
		"nothing":         {"--database="},
		"no address":      {"--database=postgres://h:hunter2"},
		"no Redis's":      {"--database=" + nowhere, "--redis=hunter2"},
		"a misplaced one": {nowhere},
	} {
		got := run(t, append([]string{"conformance"}, args...)...)
		if got.status != 2 || got.out != "" || strings.Contains(got.errOut, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
