package cell_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/torture/cell"
	"github.com/fencepost-pg/fencepost/bench/torture/check"
	"github.com/fencepost-pg/fencepost/bench/torture/history"
	"github.com/fencepost-pg/fencepost/bench/torture/load"
	"github.com/fencepost-pg/fencepost/bench/torture/report"
)

func openLab(t *testing.T) *cell.Lab {
	t.Helper()
	lab, err := cell.OpenLab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

func run(t *testing.T, lab *cell.Lab, o cell.Options) (*cell.Result, *history.History) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Worker, o.Folder = []string{self, load.Argument}, t.TempDir()
	o.Workers, o.Threads, o.Groups, o.TTL = 3, 2, 2, 300*time.Millisecond
	r, h, err := cell.Run(t.Context(), lab, &o)
	if err != nil {
		t.Fatal(err)
	}
	return r, h
}

// Workers that are stopped and killed, and a Redis that forgets, break nothing under the fence. The control is a Redis
// lock with plain writes under the same faults: it loses updates, and the checks find them. How many pauses meet a
// worker between reading and writing is chance, so the control has several tries.
func TestTheFenceHoldsWhereALockLosesUpdates(t *testing.T) {
	t.Parallel()
	lab := openLab(t)
	o := cell.Options{
		Workload: load.Register, Faults: "pause,kill,redis-flush", Seed: 1,
		Duration: 4 * time.Second, Within: 5 * time.Second,
	}
	o.Mode = load.Redis
	r, _ := run(t, lab, o)
	if len(r.Broken()) > 0 || r.Ops[history.OK] < 50 || len(r.Struck) == 0 {
		t.Errorf("under the fence: %s%+v", report.Line(r), r)
	}
	o.Mode, o.Within = load.Lock, time.Second
	const tries = 6
	for ; o.Seed <= tries; o.Seed++ {
		r, h := run(t, lab, o)
		i := slices.IndexFunc(r.Broken(), func(v check.Verdict) bool { return v.Check == "lost-update" })
		if i < 0 {
			continue
		}
		if picture := report.Timeline(h, &r.Broken()[i]); len(picture) == 0 {
			t.Error("there is no picture of the lost update")
		}
		return
	}
	t.Errorf("the lock lost nothing in %d runs", tries)
}

// Leases alone exclude each other while Redis keeps what it has. The control is a Redis that forgets.
func TestLeasesAloneExcludeAsLongAsRedisKeepsThem(t *testing.T) {
	t.Parallel()
	lab := openLab(t)
	o := cell.Options{
		Mode: load.Redis, Workload: load.Lease, Faults: "pause,redis-hang,clock", Seed: 1,
		Duration: 4 * time.Second, Within: 5 * time.Second,
	}
	r, _ := run(t, lab, o)
	i := slices.IndexFunc(r.Verdicts, func(v check.Verdict) bool { return v.Check == "exclusive" })
	if len(r.Broken()) > 0 || r.Verdicts[i].Result != check.Holds {
		t.Errorf("%s%+v", report.Line(r), r.Verdicts)
	}
	o.Faults, o.Within = "redis-empty", time.Second
	const tries = 6
	for ; o.Seed <= tries; o.Seed++ {
		_, h := run(t, lab, o)
		h.Kept = true // as if it had promised to
		if slices.ContainsFunc(check.Every(h), func(v check.Verdict) bool {
			return v.Check == "exclusive" && v.Result == check.Broken
		}) {
			return
		}
	}
	t.Errorf("a Redis that forgets granted no lease twice in %d runs", tries)
}

// A history that is kept can be read and checked again.
func TestAHistoryIsKept(t *testing.T) {
	t.Parallel()
	o := cell.Options{Folder: t.TempDir()}
	h := &history.History{Ops: []history.Op{{ID: "0.0.0.1", Kind: history.Put, Mark: "0.0.0.1"}}, Fenced: true}
	if err := cell.Keep(&o, h); err != nil {
		t.Fatal(err)
	}
	again, err := history.Read(filepath.Join(o.Folder, "history.json"))
	if err != nil || len(again.Ops) != 1 || again.Ops[0].Mark != "0.0.0.1" || !again.Fenced {
		t.Errorf("%+v, %v", again, err)
	}
}
