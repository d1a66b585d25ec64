package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// golden compares what a command printed with a file in testdata. Parts that differ from run to run are replaced first.
func golden(t *testing.T, name string, got result, own ...string) {
	t.Helper()
	text := "status " + string(rune('0'+got.status/10)) + string(rune('0'+got.status%10)) + "\n" + got.out
	if got.errOut != "" {
		text += "standard error: " + got.errOut
	}
	for i := 0; i+1 < len(own); i += 2 {
		text = strings.ReplaceAll(text, own[i], own[i+1])
	}
	for _, r := range []struct{ pattern, by string }{
		{`\d{4}-\d\d-\d\dT[\d:.]+Z`, "WHEN"},
		{`\b\d\d:\d\d:\d\dZ`, "CLOCK"},
		{`"(took_ms|held_ms)":\d+`, `"$1":0`},
		{`"fences":\d+},"workers"`, `"fences":0},"workers"`},
		{`about \d+ fences`, "about N fences"},
		{`\b(\d+m)?\d+(\.\d+)?m?s\b`, "TIME"},
		{`"left_ms":\d+`, `"left_ms":0`},
		{`"pid":\d+`, `"pid":0`},
		{`(pid|Process) \d+`, `$1 PID`},
		{`pg_terminate_backend\(\d+\)`, `pg_terminate_backend(PID)`},
		{`"client":"[^"]*",`, ""},
		{` {2,}`, "  "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.by)
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // no secret
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file) //nolint:gosec // named by the test
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(go test ./internal/cli -run %s -update, if this is meant)",
			name, text, want, t.Name())
	}
}
