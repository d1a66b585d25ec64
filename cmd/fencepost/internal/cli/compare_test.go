package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare"
	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/cli"
)

type comparison = func(context.Context, *compare.Options) (*report.Report, error)

// canned is a comparison that ends at once with this result.
func canned(r *report.Report, err error) comparison {
	return func(context.Context, *compare.Options) (*report.Report, error) { return r, err }
}

func runCompare(t *testing.T, run comparison, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	status := cli.RunComparing(t.Context(), append([]string{"compare"}, args...), &out, &errOut, run)
	return result{status, out.String(), errOut.String()}
}

func TestCompareInJSON(t *testing.T) {
	t.Parallel()
	got := runCompare(t, canned(sample.Report(), nil), "--json")
	if got.status != 0 || got.errOut != "" {
		t.Errorf("exit status %d: %s", got.status, got.errOut)
	}
	found, want := decode[report.Report](t, got), sample.Report()
	want.Settings.Command = "fencepost compare --seed=1 --workers=3"
	if !reflect.DeepEqual(&found, want) {
		t.Errorf("got %+v, want %+v", found, want)
	}
}

// The command exists to count losses, so they are no failure.
func TestCompareForPeople(t *testing.T) {
	t.Parallel()
	got := runCompare(t, canned(sample.Report(), nil))
	if got.status != 0 || got.errOut != "" {
		t.Errorf("exit status %d: %s", got.status, got.errOut)
	}
	for _, part := range []string{
		"What went wrong", "LOST", "TWICE",
		"  command              fencepost compare --seed=1 --workers=3\n",
	} {
		if !strings.Contains(got.out, part) {
			t.Errorf("no %q in\n%s", part, got.out)
		}
	}
	if strings.Contains(got.out, "\x1b") {
		t.Error("colours where there is no terminal")
	}
}

func TestComparePage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.html")
	for range 2 { // the second replaces the first
		got := runCompare(t, canned(sample.Report(), nil), "--json", "--html", path)
		if got.status != 0 {
			t.Errorf("exit status %d: %s", got.status, got.errOut)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(page), "<!DOCTYPE html>") ||
		!strings.HasSuffix(strings.TrimSpace(string(page)), "</html>") {
		t.Errorf("no page (%v): %.80q", err, page)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the page is %v (%v), want readable for everybody", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

// If the page cannot be written, the command says so before the run, which takes minutes.
func TestCompareKnowsAtOnceThatThePageCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, path := range map[string]string{"no folder": filepath.Join(dir, "no", "page.html"), "a folder": dir} {
		ran := false
		got := runCompare(t, func(context.Context, *compare.Options) (*report.Report, error) {
			ran = true
			return sample.Report(), nil
		}, "--html", path)
		if got.status != 1 || ran || got.out != "" || !strings.HasPrefix(got.errOut, "fencepost: ") {
			t.Errorf("%s: ran: %t, %+v", name, ran, got)
		}
	}
}

func TestCompareThatFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte("the last one"), 0o600); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no server at postgres://u:hunter2@h/d")
	got := runCompare(t, canned(nil, failure), "--json", "--html", path)
	if got.status != 1 || got.out != "" || got.errOut != "fencepost: no server at (address withheld)\n" {
		t.Errorf("got %+v", got)
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != "the last one" {
		t.Errorf("the page of the last run is %q (%v)", page, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

// The results of a run that ended early are shown, and marked as incomplete.
func TestCompareThatEndsEarly(t *testing.T) {
	t.Parallel()
	failure := errors.New("the fault missed at redis://u:hunter2@h/0")
	for _, form := range [][]string{{"--json"}, nil} {
		got := runCompare(t, canned(sample.Report(), failure), form...)
		if got.status != 1 || !strings.Contains(got.out, "the fault missed at (address withheld)") ||
			!strings.Contains(got.errOut, "the fault missed") {
			t.Errorf("%v: %+v", form, got)
		}
		if strings.Contains(got.out+got.errOut, "hunter2") {
			t.Errorf("%v: the password is in the output", form)
		}
	}
}

// The page of a run that ended early does not replace an existing page; if there is no page, it is written.
func TestAPageThatIsNotCompleteReplacesNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.html")
	early := canned(sample.Report(), errors.New("the fault missed"))
	if got := runCompare(
		t,
		early,
		"--json",
		"--html",
		path,
	); got.status != 1 ||
		strings.Contains(got.errOut, "earlier run") {
		t.Errorf("got %+v", got)
	}
	if page, err := os.ReadFile(path); err != nil || !strings.Contains(string(page), "not complete: the fault missed") {
		t.Errorf("the page does not say that it is not complete (%v)", err)
	}
	if err := os.WriteFile(path, []byte("the last one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCompare(
		t,
		early,
		"--json",
		"--html",
		path,
	); got.status != 1 ||
		!strings.Contains(got.errOut, "earlier run") {
		t.Errorf("got %+v", got)
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != "the last one" {
		t.Errorf("the page of the last run is %.40q (%v)", page, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

// A figure that is not a number is a bug, and an error; it never passes for a result.
func TestCompareRefusesNumbersThatAreNone(t *testing.T) {
	t.Parallel()
	r := sample.Report()
	r.Cells[0].LostUpdates = -1
	if got := runCompare(
		t,
		canned(r, nil),
		"--json",
	); got.status != 1 ||
		!strings.Contains(got.errOut, "LostUpdates is -1") {
		t.Errorf("got %+v", got)
	}
}

func TestCompareOptions(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	worker := []string{self, "compare-worker"}
	for name, c := range map[string]struct {
		args []string
		want compare.Options
		line string
	}{
		"none": {nil, compare.Options{Seed: 1, Workers: 3, Worker: worker}, "fencepost compare --seed=1 --workers=3"},
		"all": {
			[]string{
				"--seed=18446744073709551615", "--duration=1500ms", "--mode=none", "--mode", "unique", "--fault=pause,none",
				"--workload=hand-off", "--workers=16", "--quick",
			},
			compare.Options{
				Seed: 1<<64 - 1, Duration: 1500 * time.Millisecond, Modes: []string{"none", "unique"},
				Faults:    []string{"pause", "none"},
				Workloads: []string{"hand-off"}, Workers: 16, Quick: true, Worker: worker,
			},
			"fencepost compare --seed=18446744073709551615 --workers=16 --duration=1.5s --mode=none,unique --fault=pause,none " +
				"--workload=hand-off --quick",
		},
	} {
		var options compare.Options
		got := runCompare(t, func(_ context.Context, o *compare.Options) (*report.Report, error) {
			options = *o
			return sample.Report(), nil
		}, append(c.args, "--json")...)
		options.Progress = nil
		if !reflect.DeepEqual(options, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, options, c.want)
		}
		if line := decode[report.Report](t, got).Settings.Command; line != c.line {
			t.Errorf("%s: got %q, want %q", name, line, c.line)
		}
	}
}

func TestCompareUsage(t *testing.T) {
	t.Parallel()
	for want, arg := range map[string]string{
		`--mode must be one of "none","redis-lock","redis-lease",`: "--mode=hope",
		`"clock-jump" but got "fire"`:                              "--fault=pause,fire",
		"--workload names none":                                    "--workload=",
		"--workers=1 is not 2 to 16":                               "--workers=1",
		"--workers=17 is not 2 to 16":                              "--workers=17",
		"--duration=-1s is not":                                    "--duration=-1s",
		"--duration=1h0m0s is not":                                 "--duration=1h",
		"--seed":                                                   "--seed=-1",
	} {
		got := runCompare(t, func(context.Context, *compare.Options) (*report.Report, error) {
			t.Errorf("%s: it ran", arg)
			return nil, nil
		}, arg)
		if got.status != 2 || !strings.Contains(got.errOut, want) {
			t.Errorf("%s: %+v", arg, got)
		}
	}
	help := strings.Join(strings.Fields(run(t, "compare", "--help").out), " ")
	for _, part := range []string{
		"less than ten minutes", "less than 90 seconds", "by a Docker engine that answers",
		"Exit status 0", "redis-quorum", "commit-reply-lost",
	} {
		if !strings.Contains(help, part) {
			t.Errorf("no %q in the help: %s", part, help)
		}
	}
}

// Without a terminal each step is a line of its own, and nothing moves.
func TestCompareProgress(t *testing.T) {
	t.Parallel()
	got := runCompare(t, func(_ context.Context, o *compare.Options) (*report.Report, error) {
		o.Progress(1, 2, "none, counter, pause")
		o.Progress(2, 2, "figures of none")
		return sample.Report(), nil
	}, "--json")
	if got.status != 0 || got.errOut != "1 of 2: none, counter, pause\n2 of 2: figures of none\n" {
		t.Errorf("got %d, %q", got.status, got.errOut)
	}
	var bar bytes.Buffer
	cli.Bar(&bar, "none, counter, pause", "unique, invoice, pause", "figures")
	if text := bar.String(); !strings.Contains(text, "\r") || !strings.Contains(text, "1/3") ||
		!strings.Contains(text, "none, counter, pause") {
		t.Errorf("the bar is %q", text)
	}
}

// Ctrl-C ends a run, which still prints its results.
func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut bytes.Buffer
	status := cli.RunComparing(
		ctx,
		[]string{"compare"},
		&out,
		&errOut,
		func(ctx context.Context, _ *compare.Options) (*report.Report, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		},
	)
	if status != 1 || out.Len() != 0 || !strings.HasPrefix(errOut.String(), "fencepost: interrupted: ") {
		t.Errorf("status %d: %q, %q", status, out.String(), errOut.String())
	}
}

func TestTheWorkerOfCompareIsHidden(t *testing.T) {
	t.Parallel()
	if got := run(t, "--help"); !strings.Contains(got.out, "compare ") || strings.Contains(got.out, "compare-worker") {
		t.Errorf("help: %s", got.out)
	}
}
