//go:build unix

package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/mode"
	"github.com/fencepost-pg/fencepost/bench/compare/work"
	"github.com/fencepost-pg/fencepost/bench/compare/worker"
)

// Processes work on the same row at the same time until they are told to stop, and the rows agree with the outcomes
// that they got.
func TestWorkersWorkUntilTheyAreStopped(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.ForUpdate, work.HandOff)
	var all []*worker.Handle
	for number := range 3 {
		h, ended := c.start(t, number, worker.IsEnded)
		must(t, h.Begin())
		for range 5 {
			next(t, ended)
		}
		all = append(all, h)
	}
	for _, h := range all {
		must(t, h.Stop(soon(t)))
	}
	sum := c.tally.Sum()
	if sum.Accepted < 15 || sum.Operations != sum.Accepted || sum.Unknown != 0 {
		t.Errorf("the sum is %+v", sum)
	}
	if got, want := c.audit(t), (work.Audit{Effects: sum.Accepted}); got != want {
		t.Errorf("the audit is %+v, want %+v", got, want)
	}
}

// A process that is stopped between reading and writing, and past its TTL, overwrites what others have done since,
// unless there is a fence before the write. The second line is the control: the same lease, without the guard and
// without looking at the lease.
func TestAWorkerStoppedPastItsTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode  string
		naive bool
		loses bool
	}{
		{mode.RedisLock, false, true},
		{mode.RedisLease, true, true},
		{mode.RedisLease, false, false},
		{mode.Optimistic, false, false},
	} {
		name := tt.mode
		if tt.naive {
			name += " without the guard and without looking at the lease"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, tt.mode, work.HandOff)
			c.config.TTL, c.config.Unguarded, c.config.Unwatched = 400*time.Millisecond, tt.naive, tt.naive
			stopped, _ := c.start(t, 0)
			must(t, stopped.Begin())
			_, err := stopped.PauseNext(soon(t))
			must(t, err)

			other, ended := c.start(t, 1, worker.IsEnded)
			must(t, other.Begin())
			if e := next(t, ended); e.Outcome != mode.Accepted {
				t.Errorf("the other worker's operation ended %+v", e)
			}
			must(t, other.Stop(soon(t)), stopped.Resume(), stopped.Stop(soon(t)))

			sum := c.tally.Sum()
			got := c.audit(t)
			if got.Effects != sum.Accepted || got.Duplicates != 0 || (got.LostUpdates > 0) != tt.loses {
				t.Errorf("the audit is %+v after %d operations, loss expected: %v", got, sum.Accepted, tt.loses)
			}
			if (sum.Refused > 0) == tt.loses {
				t.Errorf("%d attempts were refused", sum.Refused)
			}
		})
	}
}

// A worker that has announced a point waits for GoOn.
func TestAnAnnouncedWorkerWaits(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.None, work.Counter)
	h, ended := c.start(t, 0, worker.IsEnded)
	must(t, h.Begin())
	e, err := h.AnnounceNext(soon(t))
	must(t, err)
	for ctx := soon(t); ; { // those that had ended before it
		select {
		case ended := <-ended:
			if ended.ID == e.ID {
				t.Fatal("the operation ended while it was to wait")
			}
			continue
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it does not wait")
		}
		break
	}
	must(t, h.GoOn())
	if got := next(t, ended); got.ID != e.ID || got.Outcome != mode.Accepted {
		t.Errorf("%+v ended, want %s accepted", got, e.ID)
	}
	must(t, h.Stop(soon(t)))
}

// A clock step ends the lease under which a worker wants to write. The worker acquires another and writes.
func TestAClockThatJumpsEndsTheLease(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.RedisLease, work.HandOff)
	c.config.TTL = time.Second
	h, events := c.start(t, 0, worker.IsAttempt, worker.IsEnded)
	must(t, h.Begin())
	e, err := h.AnnounceNext(soon(t))
	must(t, err, h.StepClock(time.Hour), h.GoOn())
	var refused, done bool
	for !done {
		got := next(t, events)
		refused = refused || got.ID == e.ID && got.What == worker.IsAttempt && got.Outcome == mode.Refused
		done = got.ID == e.ID && got.What == worker.IsEnded
	}
	if !refused {
		t.Error("no attempt was refused")
	}
	if e.ClockReads != 0 {
		t.Errorf("%d reads after a jump that had not been", e.ClockReads)
	}
	again, err := h.AnnounceNext(soon(t))
	must(t, err, h.GoOn())
	if again.ClockReads == 0 {
		t.Error("the clock was not read after it had jumped")
	}
	must(t, h.Stop(soon(t)))
	if got := c.audit(t); got.LostUpdates != 0 || got.Duplicates != 0 {
		t.Errorf("the audit is %+v", got)
	}
}

// A worker stops even if its current operation cannot be done.
func TestGraceEnds(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.None, work.Counter)
	c.config.Grace = 50 * time.Millisecond
	h, ended := c.start(t, 0, worker.IsEnded)
	must(t, h.Begin())
	e, err := h.AnnounceNext(soon(t))
	must(t, err, h.Stop(soon(t)))
	var last worker.Event
	for len(ended) > 0 {
		last = <-ended
	}
	if last.ID != e.ID || last.Outcome == mode.Accepted || last.Doubt {
		t.Errorf("the last operation ended %+v", last)
	}
}

func TestWhatCannotWorkSaysWhy(t *testing.T) {
	t.Parallel()
	c := newCell(t, "no-such-mode", work.Counter)
	_, err := worker.Start(soon(t), &worker.Options{Command: command(t)}, &c.config)
	if err == nil || !strings.Contains(err.Error(), "no such mode") {
		t.Errorf("got error %v", err)
	}
	if _, err := worker.Start(soon(t), &worker.Options{Command: []string{"/nonexistent"}}, &c.config); err == nil {
		t.Error("a program that does not exist was started")
	}
}

// A mistake in the work does not make a worker try for ever.
func TestBrokenWorkEndsTheWorker(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.None, work.Counter)
	_, err := c.pool.Exec(t.Context(), `DROP TABLE compare.item`)
	must(t, err)
	h, failed := c.start(t, 0, worker.IsFailed)
	must(t, h.Begin())
	if e := next(t, failed); !strings.Contains(e.Error, "compare.item") {
		t.Errorf("the worker failed with %q", e.Error)
	}
	if err := h.Stop(soon(t)); err == nil || !strings.Contains(err.Error(), "compare.item") {
		t.Errorf("got error %v", err)
	}
}

// A caller that waits for a worker gets an error when the worker is killed.
func TestTheEndOfAWorkerIsNoticed(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.None, work.Counter)
	h, err := worker.Start(soon(t), &worker.Options{Command: command(t)}, &c.config)
	must(t, err)
	noticed := make(chan error)
	go func() {
		_, err := h.AnnounceNext(soon(t)) // it was not told to begin
		noticed <- err
	}()
	must(t, h.Close())
	if err := <-noticed; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got error %v", err)
	}
}

func events(t *testing.T, out *bytes.Buffer) (all []worker.Event) {
	t.Helper()
	for lines := json.NewDecoder(out); ; {
		var e worker.Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// A worker ends with its parent, and when it gets an invalid order.
func TestWhatEndsAWorker(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.None, work.Counter)
	config, err := json.Marshal(c.config)
	must(t, err)
	for input, want := range map[string]string{
		string(config) + "\n":                                      "standard input has ended",
		string(config) + "\n\"make haste\"\n\"start\"\n":           `no order "make haste"`,
		string(config) + "\n\"clock soon\"\n":                      `no order "clock soon"`,
		string(config) + "\n\"start\"\n" + strings.Repeat("\n", 0): "standard input has ended",
	} {
		var out bytes.Buffer
		must(t, worker.Run(soon(t), strings.NewReader(input), &out))
		all := events(t, &out)
		if last := all[len(all)-1]; last.What != worker.IsFailed || !strings.Contains(last.Error, want) {
			t.Errorf("after %q the last event is %+v, want one that says %q", input[len(config):], last, want)
		}
	}
	if err := worker.Run(t.Context(), strings.NewReader("none\n"), io.Discard); err == nil {
		t.Error("a config that is none was taken")
	}
}

// If nobody reads the events, the work ends, and Run returns an error.
func TestAnEventThatCannotBeWrittenEndsTheWork(t *testing.T) {
	t.Parallel()
	c := newCell(t, mode.None, work.Counter)
	config, err := json.Marshal(c.config)
	must(t, err)
	in, orders := io.Pipe()
	out, events := io.Pipe()
	must(t, out.CloseWithError(io.ErrClosedPipe))
	ended := make(chan error)
	go func() { ended <- worker.Run(context.Background(), in, events) }()
	_, err = io.WriteString(orders, string(config)+"\n\"start\"\n")
	must(t, err)
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got error %v", err)
	}
	must(t, orders.Close())
}
