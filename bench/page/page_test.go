package page_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/measure"
	"github.com/fencepost-pg/fencepost/bench/page"
)

func once(x float64) measure.Spread { return measure.Spread{Low: x, Median: x, High: x} }

// figures are a comparison of two and a hand-off, whose ratios are as given.
func figures(ratio float64) []figure.Figure {
	return []figure.Figure{
		figure.New("by hand", "calls/s", once(1234.5), "by hand", once(1)),
		figure.New("by hand: allocations", "allocs/call", once(9), "by hand: allocations", once(1)),
		figure.New("by hand: bytes", "bytes/call", once(99), "by hand: bytes", once(1)),
		figure.New("ours", "calls/s", once(1234.5*ratio), "by hand", once(ratio)).Should(figure.AtLeast, 0.9),
		figure.New("ours: allocations", "allocs/call", once(11), "by hand: allocations", once(1)),
		figure.New("ours: p50", "ms", once(0.25), "theirs", once(ratio)).Should(figure.Below, 0.9),
		figure.New("ours, held: memory", "bytes/lease", once(42.42), "ours, few", once(1)),
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	got := page.Table(figures(0.5))
	want := `| figure | value | ratio | target | met | allocations | to |
| --- | ---: | ---: | ---: | --- | ---: | --- |
| by hand | 1234 calls/s | 1.00 |  |  | 9 |  |
| ours | 617 calls/s | 0.50 | ≥ 0.90 | **no** | 11 | by hand |
| ours: p50 | 0.25 ms | 0.50 | ≤ 0.90 | yes |  | theirs |
| ours, held: memory | 42.4 bytes/lease | 1.00 |  |  |  | ours, few |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheMiddleRunIsReported(t *testing.T) {
	t.Parallel()
	middle, err := page.Middle(figures(0.7), figures(0.5), figures(0.6))
	if err != nil || middle[3].Ratio != 0.6 || middle[5].Ratio != 0.6 {
		t.Errorf("got %+v (%v), want ratios of 0.6", middle, err)
	}
	if one, err := page.Middle(figures(0.7)); err != nil || one[3].Ratio != 0.7 {
		t.Errorf("of one run: got %+v (%v)", one, err)
	}
	if none, err := page.Middle(); err != nil || len(none) != 0 {
		t.Errorf("of no run: got %+v (%v)", none, err)
	}
	if _, err := page.Middle(figures(1), figures(1)[1:]); !errors.Is(err, page.ErrRuns) {
		t.Errorf("of different runs: got error %v, want %v", err, page.ErrRuns)
	}
}

func TestABlockIsReplaced(t *testing.T) {
	t.Parallel()
	const text = "# Title\n\n<!-- figures of x: begin -->\n<!-- figures of x: end -->\n\nMore.\n"
	filled, err := page.Fill(text, "x", "old\n")
	if err == nil {
		filled, err = page.Fill(filled, "x", page.Table(figures(1)))
	}
	if err != nil || !strings.HasPrefix(filled, "# Title\n") || !strings.HasSuffix(filled, "\n\nMore.\n") ||
		strings.Contains(filled, "old") {
		t.Errorf("got %q (%v)", filled, err)
	}
	rows, err := page.Rows(filled, "x")
	want := []string{"by hand", "ours, to by hand", "ours: p50, to theirs", "ours, held: memory, to ours, few"}
	if err != nil || !slices.Equal(rows, want) || !slices.Equal(page.RowsOf(figures(1)), want) {
		t.Errorf("got rows %q (%v), want %q", rows, err, want)
	}
	if _, err := page.Fill(text, "y", ""); err == nil {
		t.Error("got no error for a page without the block")
	}
	if _, err := page.Rows(text, "y"); err == nil {
		t.Error("got no rows' error for a page without the block")
	}
}
