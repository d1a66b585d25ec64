package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCommandLineOfPeers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"-help"}, 0, "-rounds"},
		{[]string{"-rounds", "0"}, 2, "-rounds 0"},
		{[]string{"-only", "nothing"}, 2, `"nothing"`},
		{[]string{"quorum"}, 2, `"quorum" is not a flag`},
	}
	for _, tt := range tests {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), append([]string{"peers"}, tt.args...), &stdout, &stderr)
		if status != tt.status || !strings.Contains(stderr.String(), tt.says) || stdout.Len() > 0 {
			t.Errorf(
				"%q: status %d, stdout %q, stderr %q; want %d and %q",
				tt.args,
				status,
				stdout.String(),
				stderr.String(),
				tt.status,
				tt.says,
			)
		}
	}
}

func TestOnlyPicksJobs(t *testing.T) {
	t.Parallel()
	for _, name := range jobNames() {
		if jobs := (&peersSuite{only: name}).jobs(); len(jobs) != 1 || jobs[0].name != name {
			t.Errorf("-only %s picks %d jobs", name, len(jobs))
		}
	}
	if some := (&peersSuite{only: "calls,quorum"}).jobs(); len(some) != 2 {
		t.Errorf("-only calls,quorum picks %d jobs", len(some))
	}
	if all := (&peersSuite{}).jobs(); len(all) != 6 {
		t.Errorf("without -only there are %d jobs, want 6", len(all))
	}
}

// TestEveryPeerIsMeasured runs the whole command for a very short time.
func TestEveryPeerIsMeasured(t *testing.T) {
	stdout, all := measured(t, "peers", "-rounds", "1", "-seconds", "0.1", "-waiters", "16",
		"-leases", "1500", "-ttl", "3s")
	onThePage(t, blockPeers, all, strings.NewReplacer("waiters: 16", "waiters: 1000", "held: 1500", "held: 100000"))
	targets := map[string]float64{
		"lease.Manager: hand-off p50, to pg_advisory_lock (pgx)":                                                1.5,
		"lease.Manager: acquisitions on one name, to pg_advisory_lock (pgx)":                                    0.95,
		"lease.Manager: most to least acquisitions of a client, to equal shares":                                1.1,
		"lease.Manager: hand-off p50, to rueidislock":                                                           1,
		"lease.Manager: hand-off p90, to rueidislock":                                                           1,
		"lease.Manager: hand-off p50, to redislock":                                                             1,
		"lease.Manager: hand-off p90, to redislock":                                                             1,
		"lease.Manager: hand-off p50, to redsync":                                                               1,
		"lease.Manager: hand-off p90, to redsync":                                                               1,
		"lease.Manager: acquire and release, to redislock":                                                      1,
		"lease.Manager: acquire and release, to redsync":                                                        1.4,
		"lease.Quorum: acquire and release on a quorum, to redsync, all servers":                                1.5,
		"Store, claim included: hand-off p50, to lease.Manager":                                                 0,
		"Store, claim included: hand-off p90, to lease.Manager":                                                 0,
		"lease.Manager, waiters: 16: hand-off p50, to lease.Manager, waiters: 8":                                1.3,
		"lease.Manager, leases held: 1500: memory, to lease.Manager, leases held: 1000":                         1.3,
		"lease.Manager, leases held: 1500: processor time, to lease.Manager, leases held: 1000":                 1.3,
		"lease.Manager, leases held: 1500: renewals in a third of the TTL, to lease.Manager, leases held: 1000": 1.3,
	}
	for _, f := range all {
		if f.Value < 0 || f.Ratio < 0 || f.Against == "" || (f.Met == nil) != (f.Target == nil) {
			t.Errorf("figure %+v is not whole", f)
		}
		name := f.Name + ", to " + f.Against
		want, known := targets[name]
		if known && (want == 0) != (f.Target == nil) || f.Target != nil && *f.Target != want {
			t.Errorf("figure %+v, want target %v", f, want)
		}
		delete(targets, name)
	}
	if len(targets) > 0 {
		t.Errorf("not measured: %v\n%s", targets, stdout)
	}
}
