package report_test

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
)

func text(t *testing.T, r *report.Report, color bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Text(&b, r, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTextFitsAHundredColumns(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(text(t, sample.Report(), false)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestTextHasEveryFigure(t *testing.T) {
	t.Parallel()
	got := text(t, small(), false)
	for _, line := range []string{
		`counter, pause`,
		`none +LOSS +8 +7 +3 +6 +5 +4 +0\.25 s`,
		`none +1 +2\.00 ms +3\.00 ms +5\.0 +6\.0 +4\.0`,
		`a +3 writes/s +0\.500 +0\.75 +NO +b`,
		`unique \(counter\): it only inserts`,
		`none +LOST 6`,
		`TWICE 5`,
		`unique +-`,
		`seed +18446744073709551615`,
		`synchronous_commit +off`,
		`Lost updates: none \(6 row changes\)\.`,
		`Done more than once, with one: none \(5\)\.`,
	} {
		if !regexp.MustCompile(`(?m)^ *` + line + ` *$`).MatchString(got) {
			t.Errorf("no line like %q in\n%s", line, got)
		}
	}
	if strings.Contains(got, "Nothing lost") {
		t.Errorf("it says that nothing was lost:\n%s", got)
	}
}

// A mode that made an invoice twice is not said to have lost nothing, unless the reply was lost and there was no key.
func TestSummaryOfInvoices(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]report.Cell{
		"Invoices there twice, though no reply was lost or there was a key: redis-lock (2).": {Fault: report.FaultPause},
		"Done more than once, with one: redis-lock (2).": {
			Fault: report.FaultCommitReplyLost, Keyed: true,
		},
		"Nothing lost in any cell: redis-lock.": {Fault: report.FaultCommitReplyLost},
	} {
		c.Mode, c.Workload, c.Duplicates = report.ModeRedisLock, report.WorkloadInvoice, 2
		got := report.Summary(&report.Report{Cells: []report.Cell{c}})
		damage := c.Fault == report.FaultPause || c.Keyed
		if !slices.Contains(got, want) || damage == slices.Contains(got, "Nothing lost in any cell: redis-lock.") {
			t.Errorf("%s, keyed %t: got %q, want %q", c.Fault, c.Keyed, got, want)
		}
	}
}

// Not every reader sees colours, so colour alone carries no information.
func TestTextSaysTheSameWithoutColours(t *testing.T) {
	t.Parallel()
	without, with := text(t, sample.Report(), false), text(t, sample.Report(), true)
	if strings.Contains(without, "\x1b") {
		t.Error("escape sequences though no colours were asked for")
	}
	if !strings.Contains(with, "\x1b[1;31mLOST 2") {
		t.Error("a loss has no colour")
	}
	if stripped := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(with, ""); stripped != without {
		t.Error("the text with colours is another one")
	}
}

func TestTextOfNothing(t *testing.T) {
	t.Parallel()
	if got := text(t, &report.Report{}, false); strings.Contains(got, "Every cell") || strings.Contains(got, "Left out") {
		t.Errorf("headings with nothing below them:\n%s", got)
	}
}

func TestTextSaysThatARunIsNotComplete(t *testing.T) {
	t.Parallel()
	r := small()
	r.Error = "the fault missed"
	if got := text(t, r, false); !strings.Contains(got, "This run is NOT COMPLETE: the fault missed") {
		t.Errorf("it does not say so:\n%s", got)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

func TestWritersTellErrors(t *testing.T) {
	t.Parallel()
	r := sample.Report()
	for name, err := range map[string]error{
		"text": report.Text(brokenPipe{}, r, false), "HTML": report.HTML(brokenPipe{}, r),
		"JSON": report.JSON(brokenPipe{}, r),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// If some mode ran a fault both with a key and without, the fault has two columns. A mode that always has a key needs
// only one.
func TestKeyedColumns(t *testing.T) {
	t.Parallel()
	cell := func(mode, fault string, keyed bool) report.Cell {
		return report.Cell{Mode: mode, Workload: report.WorkloadInvoice, Fault: fault, Keyed: keyed}
	}
	r := &report.Report{
		Cells: []report.Cell{
			cell(report.ModeNone, report.FaultPause, false),
			cell(report.ModeUnique, report.FaultPause, true),
			cell(
				report.ModeForUpdate,
				report.FaultCommitReplyLost,
				false,
			),
			cell(report.ModeForUpdate, report.FaultCommitReplyLost, true),
		},
		LeftOut: []report.LeftOut{
			{
				Mode:     report.ModeNone,
				Workload: report.WorkloadInvoice,
				Fault:    report.FaultCommitReplyLost,
				Keyed:    true,
				Reason:   "no place",
			},
		},
	}
	r.Cells[2].Duplicates = 1
	document, err := report.Refresh([]byte("<!-- generated: overview -->\n<!-- end -->\n"), r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `<!-- generated: overview -->

| invoice | pause | commit-reply-lost, no key | commit-reply-lost, keyed |
| --- | ---: | ---: | ---: |
| ` + "`none`" + ` | ok |  | – |
| ` + "`for-update`" + ` |  | **1 twice** | ok |
| ` + "`unique`" + ` | ok |  |  |

<!-- end -->
`
	if string(document) != want {
		t.Errorf("got\n%s\nwant\n%s", document, want)
	}
}

func TestReasonsAreGathered(t *testing.T) {
	t.Parallel()
	got := strings.Join(strings.Fields(text(t, sample.Report(), false)), " ")
	for _, line := range []string{
		"none, advisory-xact, advisory-session, for-update, optimistic (counter, redis-restart-empty, redis-failover, " +
			"cut-redis): it uses no Redis",
		"unique (counter, transfer, batch, hand-off): a unique constraint is for work that only inserts",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
}
