package model_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/internal/model"
)

var long = flag.Bool("long", false, "search more states, for minutes")

// The protocol keeps its promises in every state, and the search has been everywhere that matters. With -args -long it
// takes minutes and some gigabytes: 11.6 million states of two workers and 16.7 million of three.
func TestTheProtocolKeepsItsPromises(t *testing.T) {
	t.Parallel()
	all := []model.Bounds{{Workers: 2, Faults: 1}, {Workers: 3}, {Workers: 2, Collections: 2}}
	if *long {
		all = []model.Bounds{{Workers: 2, Faults: 3}, {Workers: 3, Faults: 1}, {Workers: 2, Faults: 1, Collections: 2}}
	}
	var tried model.Result
	for _, bounds := range all {
		r := model.Search(model.Rules{}, bounds)
		t.Logf("%d workers, %d faults, %d collections: %d states, %d claims, %d reissues, %d writes",
			bounds.Workers, bounds.Faults, bounds.Collections, r.States, r.Claims, r.Reissues, r.Writes)
		for promise, steps := range r.Broken {
			t.Errorf("%s:\n%s", promise, strings.Join(steps, "\n"))
		}
		tried.Collections, tried.Floors = tried.Collections+r.Collections, tried.Floors+r.Floors
		tried.Claims, tried.Reissues, tried.Writes = tried.Claims+r.Claims, tried.Reissues+r.Reissues, tried.Writes+r.Writes
	}
	if tried.Claims == 0 || tried.Reissues == 0 || tried.Writes == 0 || tried.Collections == 0 || tried.Floors == 0 {
		t.Errorf("not everything was tried: %+v", tried)
	}
}

// Each rule is needed: without it the search finds the promise broken that the rule is there for.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without model.Rules
		breaks  model.Violation
		after   int // steps
	}{
		"no claim":                       {model.Rules{NoClaim: true}, model.NoLost, 8},
		"no claim, no compare":           {model.Rules{NoClaim: true, NoCompare: true}, model.RowFalls, 7},
		"a claim with the fence's token": {model.Rules{ClaimAgain: true}, model.Unique, 5},
		"no guard":                       {model.Rules{NoGuard: true, NoCompare: true}, model.Fenced, 7},
		"a guard that keeps no lock":     {model.Rules{ClaimBarges: true, NoCompare: true}, model.Fenced, 7},
		"no reissue":                     {model.Rules{NoReissue: true}, model.Live, 3},
		"a read before the claim":        {model.Rules{ReadFirst: true}, model.NoLost, 8},
		"fences that are deleted":        {model.Rules{ForgetFences: true}, model.Unique, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := model.Find(c.breaks, c.without, model.Bounds{Workers: 2, Faults: 2})
			if len(r.Broken[c.breaks]) != c.after { // docs/safety.md says so as well
				t.Errorf("%d states, broken after %d steps, not %d", r.States, len(r.Broken[c.breaks]), c.after)
			}
			t.Logf("%s:\n%s", c.breaks, strings.Join(r.Broken[c.breaks], "\n"))
		})
	}
}

// The rules by which fences are collected are needed as well, the naive floor among them.
func TestEachRuleOfACollectionIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without model.Rules
		breaks  model.Violation
		after   int // steps
	}{
		"a floor read too early":         {model.Rules{OldFloor: true}, model.Unique, 11},
		"a collection without the lock":  {model.Rules{NoBucket: true}, model.Unique, 11},
		"a floor that is not raised":     {model.Rules{NoFold: true}, model.Unique, 11},
		"a floor of an earlier token":    {model.Rules{OldFold: true}, model.Unique, 15},
		"a collection under open writes": {model.Rules{CollectBarges: true, NoCompare: true}, model.Fenced, 13},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := model.Find(c.breaks, c.without, model.Bounds{Workers: 2, Faults: 1, Collections: 1})
			if len(r.Broken[c.breaks]) != c.after { // docs/safety.md says so as well
				t.Errorf("%d states, broken after %d steps, not %d", r.States, len(r.Broken[c.breaks]), c.after)
			}
			t.Logf("%s:\n%s", c.breaks, strings.Join(r.Broken[c.breaks], "\n"))
		})
	}
}
