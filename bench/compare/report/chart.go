package report

import (
	"fmt"
	"strings"
)

// chart is a picture of horizontal bars from zero, with all its values in words for those who do not see it.
type chart struct {
	ID          string // of the elements with the title and the description
	Title, Desc string
	Height      int
	Lines       []chartLine
}

type chartLine struct {
	Label  string
	LabelY int
	Bars   []chartBar
}

type chartBar struct {
	Class        string // bar or bar2
	Y, Height    int
	Width, TextX float64
	TextY        int
	Text         string
}

// series is what a chart shows: one value or two for each label.
type series struct {
	label  string
	values []float64
	texts  []string // the values for people
}

// The measures of a chart, in its own units: it is drawn for the width of a phone and grows from there.
const (
	chartWidth  = 360
	chartLabel  = 118 // the bars begin here
	chartBarMax = 140 // the longest bar
	chartBarH   = 14
	chartGap    = 10
	chartTop    = 6
)

// newChart draws values against a common scale; a most of 0 stands for the largest of them.
func newChart(id, title string, all []series, most float64) chart {
	for _, s := range all {
		for _, v := range s.values {
			most = max(most, v)
		}
	}
	c := chart{ID: id, Title: title}
	words := make([]string, 0, len(all))
	y := chartTop
	for _, s := range all {
		line := chartLine{Label: s.label, LabelY: y + len(s.values)*chartBarH/2 + 4}
		for i, v := range s.values {
			width := 0.0
			if most > 0 {
				width = v / most * chartBarMax
			}
			bar := chartBar{
				Class:  "bar",
				Y:      y,
				Height: chartBarH - 2,
				Width:  width,
				TextX:  chartLabel + width + 5,
				TextY:  y + chartBarH - 4,
				Text:   s.texts[i],
			}
			if i > 0 {
				bar.Class = "bar2"
			}
			line.Bars = append(line.Bars, bar)
			y += chartBarH
		}
		y += chartGap
		c.Lines = append(c.Lines, line)
		words = append(words, s.label+" "+strings.Join(s.texts, ", "))
	}
	c.Height = y
	c.Desc = strings.Join(words, "; ") + "."
	return c
}

// Width is the chart's, in its own units.
func (c chart) Width() int { return chartWidth }

// BarX is where the bars begin.
func (c chart) BarX() int { return chartLabel }

// LabelX is where the labels end.
func (c chart) LabelX() int { return chartLabel - 6 }

// costCharts are the rates and the times of the modes.
func costCharts(modes []ModeFigures) []chart {
	if len(modes) == 0 {
		return nil
	}
	var rates, times []series
	for _, m := range modes {
		rates = append(rates, series{m.Mode, []float64{m.OpsPerS}, []string{decimals(m.OpsPerS, 0) + "/s"}})
		times = append(
			times,
			series{
				m.Mode,
				[]float64{m.P50MS, m.P99MS},
				[]string{"p50 " + milliseconds(m.P50MS), "p99 " + milliseconds(m.P99MS)},
			},
		)
	}
	return []chart{
		newChart("chart-rate", "Operations per second, no fault", rates, 0),
		newChart("chart-time", "Time of an operation, no fault: median and 99th percentile", times, 0),
	}
}

// standstillCharts has a picture for each fault of a workload, all on one scale.
func standstillCharts(m matrix) []chart {
	var most float64
	for _, row := range m.Rows {
		for _, e := range row.Entries {
			if e.Cell != nil {
				most = max(most, e.Cell.UnavailableS)
			}
		}
	}
	var all []chart
	for i, c := range m.Columns {
		var values []series
		for _, row := range m.Rows {
			if cell := row.Entries[i].Cell; cell != nil {
				values = append(values, series{row.Mode, []float64{cell.UnavailableS}, []string{seconds(cell.UnavailableS)}})
			}
		}
		all = append(all, newChart(fmt.Sprintf("chart-still-%d", i), c.Label(), values, most))
	}
	return all
}
