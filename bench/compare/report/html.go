package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html page.css
var assets embed.FS

// HTML writes the report as one page that needs nothing else: no network, no script, no font. It follows the
// screen's light or dark colours.
func HTML(w io.Writer, r *Report) error {
	css, err := assets.ReadFile("page.css")
	if err != nil {
		return fmt.Errorf("read the style of the page: %w", err)
	}
	t, err := template.New("page.html").ParseFS(assets, "page.html")
	if err != nil {
		return fmt.Errorf("parse the page: %w", err)
	}
	if err := t.Execute(w, newPage(r, css)); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// page is what the template shows.
type page struct {
	CSS                          template.CSS
	Report                       *Report
	Summary                      []string
	Fence                        fencePicture
	Matrices                     []matrix
	Costs, Standstill            []chart
	StandstillOf                 string
	Reasons                      []string
	Settings                     []Named
	ModeNames, Faults, Workloads []Named
}

func newPage(r *Report, css []byte) *page {
	light, dark := Light(), Dark()
	style := fmt.Sprintf(
		":root{color-scheme:light dark;%s}\n@media (prefers-color-scheme:dark){:root{%s}}\n%s",
		light.css(),
		dark.css(),
		css,
	)
	p := &page{
		CSS:       template.CSS(style),
		Report:    r,
		Summary:   Summary(r),
		Fence:     newFencePicture(r),
		Matrices:  matrices(r),
		Costs:     costCharts(r.Modes),
		Settings:  SettingsRows(r),
		ModeNames: ModesExplained(),
		Faults:    FaultsExplained(),
		Workloads: WorkloadsExplained(),
	}
	if len(p.Matrices) > 0 {
		p.StandstillOf = p.Matrices[0].Workload
		p.Standstill = standstillCharts(p.Matrices[0])
	}
	for _, o := range reasons(r) {
		p.Reasons = append(p.Reasons, o.String())
	}
	return p
}

// The methods below are for the template.

// Harm are the words of an entry, each with the class of its colours.
func (e entry) Harm() []harmWord {
	switch {
	case e.Cell == nil && e.Left == nil:
		return []harmWord{{"", "", "not run"}}
	case e.Cell == nil:
		return []harmWord{{"", "–", "left out"}}
	}
	var words []harmWord
	if n := e.Cell.LostUpdates; n > 0 {
		words = append(words, harmWord{"loss", "✕", fmt.Sprintf("%d lost", n)})
	}
	if n := e.Cell.Duplicates; n > 0 {
		words = append(words, harmWord{"twice", "≡", fmt.Sprintf("%d twice", n)})
	}
	if words == nil {
		words = []harmWord{{"fine", "✓", "ok"}}
	}
	return words
}

// harmWord is a word with a sign beside it, so that nobody depends on the colour.
type harmWord struct{ Class, Sign, Text string }

// Slug is the matrix's name in the page's addresses.
func (m matrix) Slug() string { return "of-" + m.Workload }

// Rate is operations per second.
func (m ModeFigures) Rate() string { return decimals(m.OpsPerS, 0) }

// P50 is the median of the times.
func (m ModeFigures) P50() string { return milliseconds(m.P50MS) }

// P99 is the 99th percentile of the times.
func (m ModeFigures) P99() string { return milliseconds(m.P99MS) }

// TripsRedis are round trips per operation.
func (m ModeFigures) TripsRedis() string { return decimals(m.RoundTripsRedis, 1) }

// TripsPostgres are round trips per operation.
func (m ModeFigures) TripsPostgres() string { return decimals(m.RoundTripsPostgres, 1) }

// Held are the connections of a waiter.
func (m ModeFigures) Held() string { return decimals(m.ConnectionsHeld, 1) }

// Unavailable is the longest standstill.
func (c *Cell) Unavailable() string { return seconds(c.UnavailableS) }

// RatioText is the ratio for people.
func (f *Figure) RatioText() string { return decimals(f.Ratio, 3) }

// MetText says in words whether the target was met.
func (f *Figure) MetText() string {
	return map[string]string{"yes": "✓ met", "NO": "✕ missed", "-": "no target"}[f.Verdict()]
}

// Points are the corners of a post, with its tip.
func (p post) Points() string {
	const half, tip, shoulder, foot = 13, 8, 22, 142
	return strings.Join([]string{
		fmt.Sprintf("%d,%d", p.X-half, foot), fmt.Sprintf("%d,%d", p.X-half, shoulder), fmt.Sprintf("%d,%d", p.X, tip),
		fmt.Sprintf("%d,%d", p.X+half, shoulder), fmt.Sprintf("%d,%d", p.X+half, foot),
	}, " ")
}
