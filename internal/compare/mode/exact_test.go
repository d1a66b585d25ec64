package mode_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/internal/compare/mode"
	"github.com/fencepost-pg/fencepost/internal/compare/work"
)

const (
	workers = 5
	each    = 12
)

// coordinated are the modes that should be exact where nothing goes wrong: all but one.
func coordinated() []string {
	var names []string
	for _, name := range mode.Names() {
		if name != mode.None {
			names = append(names, name)
		}
	}
	return names
}

// Workers that want the same rows at the same time lose nothing and do nothing twice, in every mode that coordinates them.
func TestEveryModeIsExactUnderContention(t *testing.T) {
	t.Parallel()
	servers := redisServers(t)
	for _, name := range coordinated() {
		for _, w := range work.Workloads() {
			for _, keyed := range []bool{false, true} {
				if mode.LeftOut(name, w, keyed) != "" || keyed && w != work.Counter && w != work.Invoice {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/keyed=%v", name, w, keyed), func(t *testing.T) {
					t.Parallel()
					c := newCell(t, name, w, servers)
					done := c.crowd(t, work.Plan{Workload: w, Keyed: keyed, Seed: 5}, workers, each, nil)
					want := work.Audit{Effects: workers * each}
					if w == work.Invoice {
						want.Effects = each // all of them want the same
					}
					if got := c.audit(t, w, done); got != want {
						t.Errorf("the audit is %+v, want %+v", got, want)
					}
				})
			}
		}
	}
}

// The control: without coordination, all of those who have read before anybody writes lose what the others write.
func TestWithoutCoordinationUpdatesAreLost(t *testing.T) {
	t.Parallel()
	servers := redisServers(t)
	for w, want := range map[work.Workload]work.Audit{
		work.HandOff: {Effects: workers, LostUpdates: workers - 1},
		work.Batch:   {Effects: workers, LostUpdates: (workers - 1) * 50},
		work.Invoice: {Effects: workers, Duplicates: workers - 1},
	} {
		t.Run(string(w), func(t *testing.T) {
			t.Parallel()
			c := newCell(t, mode.None, w, servers)
			var read sync.WaitGroup
			read.Add(workers)
			first := work.Plan{Workload: w, Seed: 5}.Operations()()
			done := c.crowd(t, work.Plan{Workload: w, Seed: 5}, workers, 1, func(op *work.Operation) {
				op.Rows, op.Deltas, op.Resource = first.Rows, first.Deltas, first.Resource
				op.Between = func(context.Context) error {
					read.Done()
					read.Wait()
					return nil
				}
			})
			if got := c.audit(t, w, done); got != want {
				t.Errorf("the audit is %+v, want %+v", got, want)
			}
		})
	}
}

// An operation that is tried again after it was done takes effect once with its key, and again without.
func TestAKeyKeepsAnOperationFromBeingDoneTwice(t *testing.T) {
	t.Parallel()
	servers := redisServers(t)
	for _, name := range mode.Names() {
		for _, w := range []work.Workload{work.Counter, work.Invoice} {
			for _, keyed := range []bool{false, true} {
				if mode.LeftOut(name, w, keyed) != "" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/keyed=%v", name, w, keyed), func(t *testing.T) {
					t.Parallel()
					c := newCell(t, name, w, servers)
					op := work.Plan{Workload: w, Keyed: keyed, Seed: 5}.Operations()()
					m := c.open(t)
					for range 2 {
						if err := m.Run(t.Context(), op); err != nil {
							t.Error(err)
						}
					}
					want := work.Audit{Effects: 1}
					if !keyed && w != work.Invoice {
						want.Duplicates = 1
					}
					if got := c.audit(t, w, []work.Acknowledged{{ID: op.ID, Rows: op.Rows}}); got != want {
						t.Errorf("the audit is %+v, want %+v", got, want)
					}
				})
			}
		}
	}
}

// Each reason says something, and no mode is left out of everything.
func TestWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, name := range mode.Names() {
		in := 0
		for _, w := range work.Workloads() {
			for _, keyed := range []bool{false, true} {
				if mode.LeftOut(name, w, keyed) == "" {
					in++
				}
			}
		}
		if in == 0 {
			t.Errorf("mode %s is left out of everything", name)
		}
	}
	if mode.LeftOut(mode.ForUpdate, work.Invoice, true) == "" || mode.LeftOut(mode.Unique, work.Counter, true) == "" {
		t.Error("a mode does what it cannot do")
	}
}

// Which modes a clock that jumps can happen to is as counted.
func TestWhichModesReadTheClock(t *testing.T) {
	t.Parallel()
	servers := redisServers(t)
	for _, name := range mode.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := work.Counter
			if name == mode.Unique {
				w = work.Invoice
			}
			c := newCell(t, name, w, servers)
			var reads atomic.Int64
			c.config.Clock = func() time.Time {
				reads.Add(1)
				return time.Now()
			}
			m := c.open(t)
			opened := reads.Load()
			if err := m.Run(t.Context(), work.Plan{Workload: w, Seed: 5}.Operations()()); err != nil {
				t.Error(err)
			}
			if got := reads.Load() - opened; (got > 0) != mode.ReadsClock(name) {
				t.Errorf("the clock was read %d times", got)
			}
		})
	}
}
