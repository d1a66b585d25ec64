package check_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/torture/check"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
)

// Each check accepts its good histories and rejects its bad ones. A check without both could not fail.
func TestEachCheckAcceptsGoodHistoriesAndRejectsBadOnes(t *testing.T) {
	t.Parallel()
	for _, c := range check.All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			good, bad := 0, 0
			for _, path := range samples(t, filepath.Join("testdata", c.Name, "*.json")) {
				want := check.Holds
				if strings.HasPrefix(filepath.Base(path), "bad") {
					want = check.Broken
					bad++
				} else {
					good++
				}
				v := c.Run(read(t, path))
				if v.Result != want {
					t.Errorf("%s: %+v, want %s", path, v, want)
				}
				if want == check.Broken && v.Why == "" {
					t.Errorf("%s: the verdict does not say what is broken", path)
				}
			}
			if good == 0 || bad == 0 {
				t.Errorf("there are %d good and %d bad histories", good, bad)
			}
		})
	}
}

// A history that lacks what a check needs is no reason to call it good. What is in none of its operations cannot have
// gone wrong, and has not gone right either.
func TestAnEmptyHistoryDecidesNothing(t *testing.T) {
	t.Parallel()
	h := &history.History{}
	for _, c := range check.All() {
		if v := c.Run(h); v.Result != check.NotDecided && c.Name != "acknowledged" {
			t.Errorf("%s: %+v", c.Name, v)
		}
	}
}

// The verdict names the operation whose answer leaves the row without an order.
func TestTheVerdictNamesTheOperationThatShowsIt(t *testing.T) {
	t.Parallel()
	for _, c := range check.All() {
		if c.Name != "linearizable" {
			continue
		}
		v := c.Run(read(t, filepath.Join("testdata", c.Name, "bad-lost-update.json")))
		if v.Row != "g0/0" || len(v.Ops) == 0 || v.Ops[len(v.Ops)-1] != "0.0.0.1" {
			t.Errorf("%+v", v)
		}
	}
}

func samples(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func read(t *testing.T, path string) *history.History {
	t.Helper()
	h, err := history.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
