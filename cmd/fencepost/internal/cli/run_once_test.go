//go:build unix

package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost"
)

// Two hosts, one run: the second one finds the key, before or after it has waited for the first.
func TestRunOnceOnTwoHosts(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	var wg sync.WaitGroup
	results := make([]result, 4)
	for i := range results {
		wg.Go(func() {
			results[i] = run(t, p.with("run -r invoices --once 2026-11 --", "sh", "-c", "sleep 0.2; echo ran")...)
		})
	}
	wg.Wait()
	out := ""
	for _, r := range results {
		out += r.out
		if r.status != 0 || r.errOut != "" {
			t.Errorf("%+v", r)
		}
	}
	if out != "ran\n" {
		t.Errorf("it ran %d times", strings.Count(out, "ran"))
	}
	if got := run(t, p.with("run -v -r invoices --once 2026-11 --", "echo", "ran")...); got.status != 0 || got.out != "" ||
		!strings.Contains(got.errOut, `the ledger has the key "2026-11"`) {
		t.Errorf("%+v", got)
	}
}

// The control: without the key each of them runs.
func TestRunOnceOnTwoHostsControl_WithoutAKeyBothRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for range 2 {
		if got := run(t, p.with("run -r invoices --", "echo", "ran")...); got.status != 0 || got.out != "ran\n" {
			t.Errorf("%+v", got)
		}
	}
}

// What failed, or was overtaken, may run again.
func TestRunOnceEntersNothingUnlessItEndedWell(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if got := run(t, p.with("run -r x --once k --", "false")...); got.status != 1 {
		t.Errorf("%+v", got)
	}
	// The program is overtaken in the database alone: its lease in Redis remains.
	cmd, errOut, in := p.start(p.with("run -r x --once k --", "sh", "-c", "echo; cat >/dev/null")...)
	p.overtake("x", 100, "operator")
	_ = in.Close() // which ends the program
	_ = cmd.Wait()
	status := cmd.ProcessState.ExitCode()
	if status != 80 || !strings.Contains(errOut.String(), `the key "k" was not entered`) {
		t.Errorf("status %d, %s", status, errOut)
	}
	if got := run(t, p.with("run -r x --once k --", "echo", "ran")...); got.status != 0 || got.out != "ran\n" {
		t.Errorf("%+v", got)
	}
}

// A key that a program has used for its own work does not count as a run of this command.
func TestRunOnceRefusesAKeyOfOtherWork(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	l := p.acquire("x", "service")
	_, err := fencepost.Once(t.Context(), l, "k", "pay", func(context.Context, pgx.Tx) (int, error) { return 1, nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, p.with("run -r x --once k --", "echo", "ran")...); got.status != 77 || got.out != "" {
		t.Errorf("%+v", got)
	}
}
