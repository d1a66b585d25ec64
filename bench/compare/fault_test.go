package compare_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/fault"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/internal/faults"
	"github.com/fencepost-pg/fencepost/internal/services"
	"github.com/fencepost-pg/fencepost/internal/testenv"
)

// A fault that does not strike is noticed: each fault is misdirected here, and returns an error.
func TestAFaultThatMissesIsAnError(t *testing.T) {
	t.Parallel()
	idle := func() *faults.Proxy { return faults.NewProxy(t, "127.0.0.1:1") }
	pair, err := services.StartPair(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pair.Close() }()
	astray := []struct {
		fault string
		lead  func(*fault.Scene)
	}{
		{report.FaultCutRedis, func(s *fault.Scene) { s.Redis = [][]*faults.Proxy{{idle()}, {idle()}} }},
		{report.FaultCutPostgres, func(s *fault.Scene) { s.Postgres = []*faults.Proxy{idle(), idle()} }},
		{report.FaultCommitReplyLost, func(s *fault.Scene) { s.Postgres = []*faults.Proxy{idle(), idle()} }},
		{report.FaultBackendKilled, func(s *fault.Scene) { s.Applications = []string{"nobody", "nobody"} }},
		{report.FaultRedisRestartEmpty, func(s *fault.Scene) { s.Servers = []*services.Redis{testenv.OwnRedis(t)} }},
		{report.FaultRedisFailover, func(s *fault.Scene) { s.Pair = pair }},
		// Nobody is there to overtake the victim.
		{report.FaultPause, func(s *fault.Scene) { s.TTL /= 4; holdUp(t, s, 1-s.Victim) }},
		{report.FaultRedisRestartEmpty, func(s *fault.Scene) { s.TTL /= 4; holdUp(t, s, 1-s.Victim) }},
		// A victim that makes no progress never reaches the point of the fault. Its order to stop itself stays, so this is
		// the last fault.
		{report.FaultClockJump, func(s *fault.Scene) { holdUp(t, s, s.Victim) }},
		{report.FaultPause, func(s *fault.Scene) { holdUp(t, s, s.Victim) }},
	}
	o := options(t)
	o.Workers = 2
	cell := compare.Cell{Mode: report.ModeRedisLease, Workload: report.WorkloadCounter, Fault: report.FaultNone}
	err = compare.OnStage(t.Context(), o, testenv.EmptyDatabase(t), cell, func(s *fault.Scene) error {
		for _, a := range astray {
			f, err := fault.Find(a.fault)
			if err != nil {
				return err
			}
			led := *s
			led.Patience = 2 * time.Second
			a.lead(&led)
			if err := f.Strike(t.Context(), &led); !errors.Is(err, fault.ErrMissed) {
				t.Errorf("%s: got %v, want ErrMissed", a.fault, err)
			}
			for _, w := range s.Workers {
				_ = w.GoOn() // it may have been left where it was
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// holdUp leaves a worker waiting. An order to stop itself that came to nothing before may strike it on its way
// there, and then it is resumed.
func holdUp(t *testing.T, s *fault.Scene, number int) {
	t.Helper()
	worker := s.Workers[number]
	there := make(chan error, 1)
	go func() {
		_, err := worker.AnnounceNext(t.Context())
		there <- err
	}()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case err := <-there:
			if err != nil {
				t.Error(err)
			}
			return
		case <-again.C:
			_ = worker.Resume() // one that runs stays as it is
		}
	}
}

// A cell that takes too long fails the run with its name, and the others go on.
func TestACellThatTakesTooLongIsNamed(t *testing.T) {
	o := options(t)
	compare.Impatient(o, time.Nanosecond)
	o.Duration = time.Nanosecond
	cell := compare.Cell{Mode: report.ModeForUpdate, Workload: report.WorkloadBatch, Fault: report.FaultNone}
	url := testenv.EmptyDatabase(t)
	found, err := compare.RunCells(t.Context(), o, url, []compare.Cell{cell})
	if err == nil || len(found.Cells) != 0 {
		t.Errorf("%d cells came of no time at all", len(found.Cells))
	} else if text := err.Error(); !strings.HasPrefix(text, "cell for-update, batch, none: ") ||
		!strings.Contains(text, "not done within 2ns") {
		t.Errorf("got %q", text)
	}
	wantNothingLeft(t, url)
}

// However a run is interrupted, no database remains. TestMain checks that no process and no goroutine does.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	o := options(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Parallel = 2
	o.Progress = func(int, int, string) { cancel() }
	o.Duration = 10 * time.Millisecond
	var cells []compare.Cell
	for _, f := range []string{report.FaultNone, report.FaultPause, report.FaultRedisRestartEmpty} {
		cells = append(cells, compare.Cell{Mode: report.ModeRedisQuorum, Workload: report.WorkloadCounter, Fault: f})
	}
	url := testenv.EmptyDatabase(t)
	found, err := compare.RunCells(ctx, o, url, cells)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that it was interrupted", err)
	}
	if got := err.Error(); got != context.Canceled.Error() {
		t.Errorf("got %q, want the cause alone", got)
	}
	if n := len(found.Cells); n == 0 || n == len(cells) {
		t.Errorf("%d of %d cells were found", n, len(cells))
	}
	wantNothingLeft(t, url)
}

// wantNothingLeft looks for databases of any run, so that tests which call it are not parallel.
func wantNothingLeft(t *testing.T, url string) {
	t.Helper()
	var left int
	err := testenv.PoolOn(t, url).QueryRow(t.Context(), `
		SELECT count(*) FROM pg_database WHERE datname LIKE 'fencepost_compare_%'`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d databases are left: %v", left, err)
	}
}
