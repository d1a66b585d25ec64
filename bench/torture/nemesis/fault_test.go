package nemesis_test

import (
	"testing"

	"github.com/fencepost-pg/fencepost/bench/torture/nemesis"
)

func TestAListOfNamesChoosesFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list    string
		servers int
		want    int // 0: an error
		kept    bool
	}{
		{"all", 1, len(nemesis.All()), false},
		{"pause,pause,kill", 1, 2, true},
		{"redis-", 1, 9, false},
		{"redis-", 3, 7, false}, // a quorum has no spare
		{"kept,redis-", 0, 11, true},
		{"pause,nothing", 1, 0, false},
	} {
		chosen, err := nemesis.Choose(tt.list, tt.servers)
		if len(chosen) != tt.want || (err != nil) != (tt.want == 0) || err == nil && nemesis.Kept(chosen) != tt.kept {
			t.Errorf("%s with %d servers: %d faults, %v", tt.list, tt.servers, len(chosen), err)
		}
	}
}
