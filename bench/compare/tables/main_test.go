package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
)

const prose = "Prose.\n<!-- generated: modes -->\n<!-- end -->\n"

// files writes a report and a document, and returns the arguments that name them.
func files(t *testing.T, r *report.Report, document string) (args []string, toJSON, markdown string) {
	t.Helper()
	dir := t.TempDir()
	from, toJSON, markdown := filepath.Join(dir, "from.json"), filepath.Join(dir, "to.json"), filepath.Join(dir, "to.md")
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{from: text, markdown: []byte(document)} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"-report", from, "-json", toJSON, "-markdown", markdown}, toJSON, markdown
}

func TestTables(t *testing.T) {
	t.Parallel()
	args, toJSON, markdown := files(t, sample.Report(), prose)
	var errOut bytes.Buffer
	if status := run(args, &errOut); status != 0 || errOut.Len() > 0 {
		t.Fatalf("status %d: %s", status, errOut.String())
	}
	document, err := os.ReadFile(markdown)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(document), "Prose.\n") || !strings.Contains(string(document), "| `redis-lease` |") {
		t.Errorf("the document is %s", document)
	}
	var want bytes.Buffer
	if err := report.JSON(&want, sample.Report()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(toJSON); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the JSON is another report (%v)", err)
	}
}

// Only a run that was carried out is written.
func TestTablesRefuse(t *testing.T) {
	t.Parallel()
	broken := sample.Report()
	broken.Error = "the fault missed"
	strange := sample.Report()
	strange.Cells[0].Mode = "hope"
	for want, c := range map[string]struct {
		report   *report.Report
		document string
	}{
		"the run is not complete: the fault missed": {broken, prose},
		`"hope" is no mode`:                         {strange, prose},
		"has no generated part":                     {sample.Report(), "Prose.\n"},
	} {
		args, toJSON, markdown := files(t, c.report, c.document)
		var errOut bytes.Buffer
		if status := run(args, &errOut); status != 1 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%s: status %d: %s", want, status, errOut.String())
		}
		if _, err := os.Stat(toJSON); err == nil {
			t.Errorf("%s: the JSON was written", want)
		}
		if got, err := os.ReadFile(markdown); err != nil || string(got) != c.document {
			t.Errorf("%s: the document was changed", want)
		}
	}
}

func TestTablesUsage(t *testing.T) {
	t.Parallel()
	var errOut bytes.Buffer
	for _, args := range [][]string{nil, {"-report", "x"}, {"-loud"}} {
		if status := run(args, &errOut); status != 2 {
			t.Errorf("%v: status %d", args, status)
		}
	}
	if status := run([]string{"-report", "no/such", "-json", "a", "-markdown", "b"}, &errOut); status != 1 {
		t.Errorf("a report that is not there: status %d", status)
	}
}
