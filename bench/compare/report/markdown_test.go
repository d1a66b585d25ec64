package report_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
)

const document = `# Prose

<!-- generated: overview -->
old
<!-- end -->

Kept | as it is.

<!-- generated: cells -->
<!-- end -->
<!-- generated: modes -->
<!-- end -->
<!-- generated: figures -->
<!-- end -->
<!-- generated: left-out -->
<!-- end -->
<!-- generated: run -->
<!-- end -->
Last.
`

func TestRefresh(t *testing.T) {
	t.Parallel()
	once, err := report.Refresh([]byte(document), sample.Report())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"# Prose\n\n<!-- generated: overview -->\n\n| counter | none |", "\n\nKept | as it is.\n\n", "<!-- end -->\nLast.\n",
		"| `none` | **12345 lost** | **12346 lost** |", "| `unique` | – |", "**7 lost**, **3 twice** |",
		"| counter | pause | `redis-lock` | 1100 | 1090 | 7 | 1 | 2 | 0 | 1 | 0.35 s |",
		"| `redis-lock` | 1575 | 1.91 ms | 21.2 ms | 2.0 | 2.2 | 0.0 |",
		"| redis-lease, 1 write per lease | 310 writes/s | for-update, 1 write | 0.400 | 0.90 | ✕ missed |",
		"- unique (counter, transfer, batch, hand-off): a unique", "| postgres | 15.18 |",
	} {
		if !strings.Contains(string(once), part) {
			t.Errorf("no %q in\n%s", part, once)
		}
	}
	if strings.Contains(string(once), "old") {
		t.Error("what was generated before is still there")
	}
	twice, err := report.Refresh(once, sample.Report())
	if err != nil || string(twice) != string(once) {
		t.Errorf("a second time it is another document (%v)", err)
	}
}

func TestRefreshRefusesOtherDocuments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"# Prose\n": "no generated part",
		"<!-- generated: results -->\n<!-- end -->\n": `no part is called "results"`,
		"<!-- generated: modes -->\nand on\n":         "has no end",
		"<!-- generated: modes":                       "has no end",
	} {
		if _, err := report.Refresh([]byte(text), sample.Report()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// The document that `make comparison` refreshes has every part, and explains every name in the tables.
func TestTheDocumentHasEveryPart(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/comparison.md"
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := report.Refresh(document, sample.Report()); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"run", "overview", "modes", "figures", "cells", "left-out"} {
		if n := strings.Count(string(document), "<!-- generated: "+part+" -->\n"); n != 1 {
			t.Errorf("the part %s is there %d times", part, n)
		}
	}
	prose, _, _ := strings.Cut(string(document), "<!-- generated: ")
	for _, name := range slices.Concat(report.Modes(), report.Faults(), report.Workloads()) {
		if !strings.Contains(prose, "`"+name+"`") {
			t.Errorf("%s is not explained in %s", name, path)
		}
	}
}
