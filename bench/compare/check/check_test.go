package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
)

func checked(t *testing.T, text []byte) (status int, told string) {
	t.Helper()
	var out, errOut bytes.Buffer
	status = run(bytes.NewReader(text), &out, &errOut)
	return status, errOut.String()
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(sample.Report())
	if err != nil {
		t.Fatal(err)
	}
	if status, told := checked(t, text); status != 0 || told != "" {
		t.Errorf("status %d: %s", status, told)
	}
}

// Each rule of the check, broken.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	cell := func(r *report.Report, mode, fault string, keyed bool) *report.Cell {
		for i := range r.Cells {
			if c := &r.Cells[i]; c.Mode == mode && c.Fault == fault && c.Keyed == keyed {
				return c
			}
		}
		t.Fatalf("no cell %s, %s", mode, fault)
		return nil
	}
	for want, spoil := range map[string]func(*report.Report){
		"not complete: the fault": func(r *report.Report) { r.Error = "the fault" },
		"redis-lease lost 1 updates": func(r *report.Report) {
			cell(r, "redis-lease", "pause", false).LostUpdates = 1
		},
		"unique lost 2 updates": func(r *report.Report) {
			cell(r, "unique", "pause", false).LostUpdates = 2
		},
		"none lost no update": func(r *report.Report) {
			cell(r, "none", "pause", false).LostUpdates = 0
		},
		"redis-lock lost no update": func(r *report.Report) {
			cell(r, "redis-lock", "pause", false).LostUpdates = 0
		},
		"for-update has accounts that are off by 3: pause": func(r *report.Report) {
			cell(r, "for-update", "pause", false).Unbalanced = 3
		},
		"optimistic did 1 things twice": func(r *report.Report) {
			cell(r, "optimistic", "commit-reply-lost", true).Duplicates = 1
		},
		"redis-lease made 2 invoices twice: pause": func(r *report.Report) {
			invoices(r, "redis-lease").Duplicates = 2
		},
		"had nothing done twice: none, redis-lock, for-update": func(r *report.Report) { onceEach(r) },
		"2 of 1 refusals were by PostgreSQL": func(r *report.Report) {
			c := cell(r, "none", "pause", false)
			c.Refused, c.RefusedByPostgres = 1, 2
		},
		"of 1 operations were accepted": func(r *report.Report) {
			cell(r, "none", "pause", false).Operations = 1
		},
		"a mode: the report has none":                  func(r *report.Report) { r.Modes = nil },
		"a figure: the report has none":                func(r *report.Report) { r.Figures = nil },
		"versions has no redis":                        func(r *report.Report) { delete(r.Versions, "redis") },
		"optimistic has no figures":                    func(r *report.Report) { r.Modes[7].OpsPerS = 0 },
		"redis-quorum has no cell in which anything w": func(r *report.Report) { forget(r, "redis-quorum") },
	} {
		r := sample.Report()
		spoil(r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if status, told := checked(t, text); status != 1 || !strings.Contains(told, want) {
			t.Errorf("%s: status %d, told %q", want, status, told)
		}
	}
}

// invoices is the cell of a mode with a paused worker.
func invoices(r *report.Report, mode string) *report.Cell {
	i := slices.IndexFunc(r.Cells, func(c report.Cell) bool {
		return c.Mode == mode && c.Workload == report.WorkloadInvoice && c.Fault == report.FaultPause
	})
	return &r.Cells[i]
}

// onceEach leaves duplicates in cells in which the check must not accept them.
func onceEach(r *report.Report) {
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Mode == report.ModeNone || c.Mode == report.ModeRedisLock || c.Mode == report.ModeForUpdate {
			c.Duplicates = 0
		}
	}
}

func forget(r *report.Report, mode string) {
	for i := range r.Cells {
		if r.Cells[i].Mode == mode {
			r.Cells[i].Accepted = 0
		}
	}
}

func TestCheckLooksAtTheShape(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(sample.Report())
	if err != nil {
		t.Fatal(err)
	}
	for want, changed := range map[string]string{
		"read the report":          "",
		"a cell has no unbalanced": strings.Replace(string(text), `"unbalanced":0,`, "", 1),
		"a cell has no mode":       strings.Replace(string(text), `"mode"`, `"manner"`, 1),
		"unknown field \"extra\"":  strings.Replace(string(text), `{"cells"`, `{"extra":1,"cells"`, 1),
		"after top-level value":    string(text) + "{}",
		"left_out is not a list":   strings.Replace(string(text), `"left_out"`, `"left"`, 1),
		"invalid character 'o' in": "not JSON",
	} {
		if status, told := checked(t, []byte(changed)); status != 1 || !strings.Contains(told, want) {
			t.Errorf("%s: status %d, told %q", want, status, told)
		}
	}
}
