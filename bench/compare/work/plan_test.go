package work_test

import (
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/work"
)

func TestAPlanIsItsSeed(t *testing.T) {
	t.Parallel()
	draw := func(p work.Plan) (ops []*work.Operation) {
		for next := p.Operations(); len(ops) < 50; {
			ops = append(ops, next())
		}
		return ops
	}
	for _, w := range work.Workloads() {
		p := work.Plan{Workload: w, Keyed: true, Seed: 3, Worker: 1}
		if !reflect.DeepEqual(draw(p), draw(p)) {
			t.Errorf("the plan of %s is not the same twice", w)
		}
		other := p
		other.Worker = 2
		if draw(p)[0].ID == draw(other)[0].ID {
			t.Errorf("two workers' operations of %s have one id", w)
		}
	}
}

// The audit assumes that rows ascend and exist, and that a row's deltas have one size and one sign.
func TestOperationsCanBeAudited(t *testing.T) {
	t.Parallel()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for _, w := range work.Workloads() {
		ids, deltas, resources := map[string]bool{}, map[int64]int64{}, map[int64]string{}
		next := work.Plan{Workload: w, Seed: 1}.Operations()
		for range 500 {
			op := next()
			if !uuid.MatchString(op.ID) || ids[op.ID] {
				t.Errorf("%s: id %q", w, op.ID)
			}
			ids[op.ID] = true
			if len(op.Rows) == 0 || len(op.Rows) != len(op.Deltas) || !slices.IsSorted(op.Rows) {
				t.Errorf("%s: rows %v, deltas %v", w, op.Rows, op.Deltas)
			}
			for i, row := range op.Rows {
				if w != work.Invoice && (row < 1 || row > int64(work.Items(w))) {
					t.Errorf("%s: there is no row %d", w, row)
				}
				if before, ok := deltas[row]; ok && before != op.Deltas[i] {
					t.Errorf("%s: row %d rises by %d and by %d", w, row, before, op.Deltas[i])
				}
				if before, ok := resources[row]; ok && before != op.Resource {
					t.Errorf("%s: row %d belongs to %s and to %s", w, row, before, op.Resource)
				}
				deltas[row], resources[row] = op.Deltas[i], op.Resource
			}
		}
		if w != work.Invoice && len(deltas) != work.Items(w) {
			t.Errorf("%s: %d of %d rows are used", w, len(deltas), work.Items(w))
		}
	}
}
