package mode_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

const (
	workers = 5
	each    = 12
)

// coordinated are the modes that should be exact as long as nothing goes wrong: all but one.
func coordinated() []string {
	var names []string
	for _, name := range mode.Names() {
		if name != mode.None {
			names = append(names, name)
		}
	}
	return names
}

// In every mode that coordinates, workers that want the same rows at the same time lose nothing and do nothing twice.
func TestEveryModeIsExactUnderContention(t *testing.T) {
	t.Parallel()
	servers := redisServers(t, mode.RedisQuorum)
	for _, name := range coordinated() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCells(t, name, servers)
			for _, p := range plans(name, work.Workloads()) {
				if p.Keyed && p.Workload != work.Counter && p.Workload != work.Invoice {
					continue
				}
				t.Run(fmt.Sprintf("%s/keyed=%v", p.Workload, p.Keyed), func(t *testing.T) {
					c.reset(t, p.Workload)
					done := c.crowd(t, p, workers, each, nil)
					want := work.Audit{Effects: workers * each}
					if p.Workload == work.Invoice {
						want.Effects = each // all of them want the same
					}
					if got := c.audit(t, p.Workload, done); got != want {
						t.Errorf("the audit is %+v, want %+v", got, want)
					}
				})
			}
		})
	}
}

// plans returns one plan for each workload that makes sense for a mode, with keys and without. Each has different
// operations, because a database that has seen a key does not do its work again.
func plans(name string, workloads []work.Workload) (all []work.Plan) {
	for _, w := range workloads {
		for _, keyed := range []bool{false, true} {
			if mode.LeftOut(name, w, keyed) == "" {
				all = append(all, work.Plan{Workload: w, Keyed: keyed, Seed: uint64(5 + len(all))})
			}
		}
	}
	return all
}

// The control: without coordination, workers that have all read before any of them writes lose each other's updates.
func TestWithoutCoordinationUpdatesAreLost(t *testing.T) {
	t.Parallel()
	servers := redisServers(t, mode.None)
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

// An operation that is tried again after it was done takes effect once if it has a key, and twice if it has none.
func TestAKeyKeepsAnOperationFromBeingDoneTwice(t *testing.T) {
	t.Parallel()
	servers := redisServers(t, mode.RedisQuorum)
	for _, name := range mode.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCells(t, name, servers)
			for _, p := range plans(name, []work.Workload{work.Counter, work.Invoice}) {
				t.Run(fmt.Sprintf("%s/keyed=%v", p.Workload, p.Keyed), func(t *testing.T) {
					c.reset(t, p.Workload)
					op := p.Operations()()
					m := c.open(t)
					for range 2 {
						if err := m.Run(t.Context(), op); err != nil {
							t.Error(err)
						}
					}
					want := work.Audit{Effects: 1}
					if !p.Keyed && p.Workload != work.Invoice {
						want.Duplicates = 1
					}
					if got := c.audit(t, p.Workload, []work.Acknowledged{{ID: op.ID, Rows: op.Rows}}); got != want {
						t.Errorf("the audit is %+v, want %+v", got, want)
					}
				})
			}
		})
	}
}

// Each reason has a text, and no mode is left out of every cell.
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

// The modes that a clock step can affect are those that are listed.
func TestWhichModesReadTheClock(t *testing.T) {
	t.Parallel()
	servers := redisServers(t, mode.RedisQuorum)
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
