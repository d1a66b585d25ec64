package compare_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// The counter meets every fault in every mode, or the plan gives a reason. Nothing is planned twice.
func TestThePlanLeavesNothingOutInSilence(t *testing.T) {
	t.Parallel()
	for _, w := range report.Workloads() {
		cells, leftOut := compare.PlanOf(&compare.Options{Workloads: []string{w}})
		for _, l := range leftOut {
			if l.Reason == "" {
				t.Errorf("%+v has no reason", l)
			}
			cells = append(cells, compare.Cell{Mode: l.Mode, Workload: l.Workload, Fault: l.Fault, Keyed: l.Keyed})
		}
		seen := make(map[compare.Cell]int)
		for _, c := range cells {
			seen[c]++
		}
		for _, m := range report.Modes() {
			for _, f := range report.Faults() {
				unkeyed := seen[compare.Cell{Mode: m, Workload: w, Fault: f}]
				keyed := seen[compare.Cell{Mode: m, Workload: w, Fault: f, Keyed: true}]
				want := 1
				if f == report.FaultCommitReplyLost {
					want = 2 // with a key and without
				}
				if unkeyed > 1 || keyed > 1 || unkeyed+keyed != want {
					t.Errorf("%s, %s, %s: %d without a key and %d with one", m, w, f, unkeyed, keyed)
				}
			}
		}
	}
}

// Cells that make no sense are left out, and all others are run.
func TestThePlanLeavesOutWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	cells, leftOut := compare.PlanOf(&compare.Options{})
	for _, want := range []struct {
		cell compare.Cell
		run  bool
	}{
		{compare.Cell{Mode: "none", Workload: "counter", Fault: "pause"}, true},
		{compare.Cell{Mode: "none", Workload: "counter", Fault: "commit-reply-lost"}, true},
		{compare.Cell{Mode: "none", Workload: "counter", Fault: "commit-reply-lost", Keyed: true}, true},
		{compare.Cell{Mode: "none", Workload: "counter", Fault: "redis-failover"}, false},
		{compare.Cell{Mode: "for-update", Workload: "counter", Fault: "cut-redis"}, false},
		{compare.Cell{Mode: "for-update", Workload: "counter", Fault: "clock-jump"}, false},
		{compare.Cell{Mode: "advisory-xact", Workload: "counter", Fault: "clock-jump"}, false},
		{compare.Cell{Mode: "advisory-session", Workload: "counter", Fault: "clock-jump"}, true},
		{compare.Cell{Mode: "redis-quorum", Workload: "counter", Fault: "clock-jump"}, true},
		{compare.Cell{Mode: "redis-quorum", Workload: "counter", Fault: "redis-failover"}, true},
		{compare.Cell{Mode: "unique", Workload: "counter", Fault: "none", Keyed: true}, false},
		{compare.Cell{Mode: "unique", Workload: "invoice", Fault: "backend-killed", Keyed: true}, true},
		{compare.Cell{Mode: "redis-lease", Workload: "invoice", Fault: "commit-reply-lost", Keyed: true}, true},
	} {
		if got := slices.Contains(cells, want.cell); got != want.run {
			t.Errorf("%+v is run: %v", want.cell, got)
		}
		left := slices.ContainsFunc(leftOut, func(l report.LeftOut) bool {
			return compare.Cell{Mode: l.Mode, Workload: l.Workload, Fault: l.Fault, Keyed: l.Keyed} == want.cell
		})
		if left == want.run {
			t.Errorf("%+v is left out: %v", want.cell, left)
		}
	}
}

func TestQuickIsAPartOfThePlan(t *testing.T) {
	t.Parallel()
	full, _ := compare.PlanOf(&compare.Options{})
	quick, _ := compare.PlanOf(&compare.Options{Quick: true})
	if len(quick) == 0 || len(quick) > len(full)/2 {
		t.Errorf("%d cells of %d are quick", len(quick), len(full))
	}
	for _, c := range quick {
		if !slices.Contains(full, c) {
			t.Errorf("%+v is in the quick plan alone", c)
		}
		if c.Workload != "counter" && c.Mode != "unique" {
			t.Errorf("%+v is too much for quick", c)
		}
	}
}

func TestThePlanIsWhatWasChosen(t *testing.T) {
	t.Parallel()
	cells, leftOut := compare.PlanOf(&compare.Options{
		Modes: []string{"redis-lease", "for-update"}, Faults: []string{"cut-redis", "none"}, Workloads: []string{"batch"},
	})
	want := []compare.Cell{
		{Mode: "redis-lease", Workload: "batch", Fault: "none"},
		{Mode: "redis-lease", Workload: "batch", Fault: "cut-redis"},
		{Mode: "for-update", Workload: "batch", Fault: "none"},
	}
	if !reflect.DeepEqual(cells, want) || len(leftOut) != 1 {
		t.Errorf("planned are %+v, and %d are left out", cells, len(leftOut))
	}
}

// A seed decides what happens in a cell, independently of the other cells.
func TestThePlanIsItsSeed(t *testing.T) {
	t.Parallel()
	all := compare.Chance(&compare.Options{Seed: 7})
	if !reflect.DeepEqual(all, compare.Chance(&compare.Options{Seed: 7})) {
		t.Error("one seed makes two runs")
	}
	some := compare.Chance(&compare.Options{Seed: 7, Modes: []string{"optimistic"}, Workloads: []string{"counter"}})
	if len(some) == 0 || !slices.Contains(all, some[0]) {
		t.Error("a cell depends on others")
	}
	if other := compare.Chance(&compare.Options{Seed: 8}); reflect.DeepEqual(all, other) {
		t.Error("two seeds make one run")
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != len(compare.Chance(&compare.Options{Seed: 7})) {
		t.Error("two cells have one chance")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	command := []string{"worker"}
	for name, o := range map[string]*compare.Options{
		"no worker":   {},
		"one worker":  {Worker: command, Workers: 1},
		"a long cell": {Worker: command, Duration: 1 << 50},
		"a mode":      {Worker: command, Modes: []string{"none", "hope"}},
		"a fault":     {Worker: command, Faults: []string{"fire"}},
		"a workload":  {Worker: command, Workloads: []string{"lunch"}},
	} {
		if _, err := compare.Run(t.Context(), o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// If every chosen cell makes no sense, the error comes before any server is started: there is no time to start one.
func TestARunWithoutACellIsAnError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	o := &compare.Options{Worker: []string{"worker"}, Modes: []string{"none", "unique"}, Faults: []string{"cut-redis"}}
	found, err := compare.Run(ended, o)
	if err == nil || !strings.Contains(err.Error(), "no cell to run") ||
		!strings.Contains(err.Error(), "it uses no Redis") {
		t.Errorf("got error %v", err)
	}
	if len(found.LeftOut) == 0 {
		t.Error("the report does not say what was left out")
	}
}
