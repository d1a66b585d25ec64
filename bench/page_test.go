package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/figure"
)

// The page names the machine and servers on which its figures were measured, and the command. Nothing outside the block
// changes.
func TestThePageIsWritten(t *testing.T) {
	useTestServers(t)
	into, file := filepath.Join(t.TempDir(), "page.md"), filepath.Join(t.TempDir(), "run.json")
	t.Setenv(envJSON, file)
	before := "# Page\n\n<!-- figures of make bench: begin -->\n<!-- figures of make bench: end -->\nafter\n"
	if err := os.WriteFile(into, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := figure.JSONFile(file, []figure.Figure{{Name: "ours", Unit: "ms", Against: "theirs"}}); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	status := run(t.Context(),
		[]string{"page", "-into", into, "-library", file + "," + file + "," + file}, &stdout, &stderr)
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, stderr.String())
	}
	text, err := os.ReadFile(into)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Page\n", "\nafter\n", "| ours | 0.00 ms |", "`make bench BENCH_JSON=FILE`, the middle one of 3 runs",
		"cores", "PostgreSQL 1", "Redis ",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if again, err := os.ReadFile(file); err != nil || !bytes.Contains(again, []byte("theirs")) {
		t.Errorf("the file of the run is overwritten: %s (%v)", again, err)
	}
}

func TestAPageNeedsRuns(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"page"}, &stdout, &stderr)
	if status != 2 || !strings.Contains(stderr.String(), "-peers") {
		t.Errorf("without files: exit status %d and %q", status, stderr.String())
	}
	if _, err := fill("", blockLibrary, []string{filepath.Join(t.TempDir(), "missing")}, ""); err == nil {
		t.Error("got no error for a file that does not exist")
	}
}
