package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/cell"
	"github.com/fencepost-pg/fencepost/bench/torture/check"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/bench/torture/report"
)

// Only a fenced mode has anything to promise, so a lock that loses updates is as it should be.
func TestALockMayBreakAndAFenceMayNot(t *testing.T) {
	t.Parallel()
	broken := []check.Verdict{{Check: "lost-update", Result: check.Broken, Count: 3, Why: "it is gone"}}
	lock := &cell.Result{Mode: load.Lock, Workload: load.Register, Verdicts: broken, Ops: map[history.Outcome]int{"ok": 5}}
	fenced := &cell.Result{Mode: load.Redis, Workload: load.Register, Ops: map[history.Outcome]int{"ok": 7, "refused": 1}}
	r := &report.Report{Seed: 42, Cells: []*cell.Result{lock, fenced}}
	if !r.Expected() {
		t.Error("a lock may lose updates")
	}
	text := r.Markdown()
	for _, want := range []string{
		"seed 42", "8 operations were checked", "| lock | register |  | 5 | 0 | 0 | 0 | lost-update (3) |", "| nothing |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	fenced.Verdicts = broken
	if r.Expected() || !strings.Contains(report.Line(fenced), "BROKEN") {
		t.Error("a fence may lose nothing")
	}
}

// The picture is well-formed, and names the operations of the verdict.
func TestTheTimelineShowsTheOperationsOfAVerdict(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Duration { return time.Hour + time.Duration(ms)*time.Millisecond }
	h := &history.History{
		Ops: []history.Op{
			{ID: "0.0.0.1", Kind: history.Change, Rows: []string{"g0/0"}, Invoked: at(0), Returned: at(40), Outcome: history.OK},
			{ID: "1.0.0.1", Kind: history.Change, Rows: []string{"g0/0"}, Invoked: at(10), Outcome: "", Read: `<"start">`},
			{ID: "1.0.0.2", Kind: history.Get, Rows: []string{"g1/0"}, Invoked: at(11), Returned: at(12), Outcome: history.OK},
		},
		Faults: []history.Fault{{Name: "pause", Target: "worker 0", Began: at(5), Healed: at(30)}},
	}
	v := &check.Verdict{
		Check: "lost-update", Result: check.Broken, Why: "gone", Row: "g0/0",
		Ops: []string{"0.0.0.1", "1.0.0.1"},
	}
	picture := report.Timeline(h, v)
	for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, picture)
		}
	}
	for _, want := range []string{"0.0.0.1 change: ok", "1.0.0.1 change: never returned", "pause worker 0"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("the picture lacks %q:\n%s", want, picture)
		}
	}
	if strings.Contains(string(picture), "1.0.0.2") {
		t.Error("the picture shows an operation on another row")
	}
	if report.Timeline(h, &check.Verdict{Check: "clean"}) != nil {
		t.Error("there is a picture of nothing")
	}
}
