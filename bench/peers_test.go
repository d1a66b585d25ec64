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

func TestOnlyPicksOneJob(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"handoff", "calls", "quorum"} {
		if jobs := (&peersSuite{only: name}).jobs(); len(jobs) != 1 || jobs[0].name != name {
			t.Errorf("-only %s picks %d jobs", name, len(jobs))
		}
	}
	if all := (&peersSuite{}).jobs(); len(all) != 3 {
		t.Errorf("without -only there are %d jobs, want 3", len(all))
	}
}
