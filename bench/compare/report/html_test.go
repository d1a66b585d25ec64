package report_test

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
)

func html(t *testing.T, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A test in a browser checks how the page is displayed.
func TestPageNeedsNothingElse(t *testing.T) {
	t.Parallel()
	got := html(t, sample.Report())
	for _, needs := range []string{
		"<script", "<link rel=\"stylesheet", "@import", "url(", " src=",
		"http://", "https://", "ZgotmplZ",
	} {
		if strings.Contains(got, needs) {
			t.Errorf("%s is in the page", needs)
		}
	}
	if !strings.Contains(got, `content="default-src 'none';`) {
		t.Error("the page does not forbid itself the network")
	}
}

func TestPageHasEveryFigure(t *testing.T) {
	t.Parallel()
	got := html(t, small())
	for _, part := range []string{
		`<html lang="en">`, `6 lost</span>`, `5 twice</span>`, `left out</span>`,
		`<th scope="row">none</th><td>9</td><td>8</td><td>7</td><td>3</td><td><strong>6 lost</strong></td>` +
			`<td><strong>5 twice</strong></td><td>4</td><td>0.25 s</td>`,
		`<th scope="row">none</th><td>1</td><td>2.00 ms</td><td>3.00 ms</td><td>5.0</td><td>6.0</td><td>4.0</td>`,
		`<td>3 writes/s</td><td class="words">b</td><td>0.500</td><td>0.75</td><td>✕ missed</td>`,
		`<li>unique (counter): it only inserts</li>`, `<code>18446744073709551615</code>`, `<code>go1.26</code>`,
		`none p50 2.00 ms, p99 3.00 ms.</desc>`, `Row changes lost over all cells: none lost 6.</desc>`, `class="fallen"`,
	} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in the page", part)
		}
	}
	if strings.Contains(got, `class="stands"`) {
		t.Error("a mode that lost updates still stands")
	}
}

func TestPageQuotesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	got := html(t, sample.Report())
	if strings.Contains(got, "<processors>") || !strings.Contains(got, "&lt;processors&gt; &amp; more") {
		t.Error("a version is taken for HTML")
	}
}

func TestPageSaysThatARunIsNotComplete(t *testing.T) {
	t.Parallel()
	r := small()
	if strings.Contains(html(t, r), "not complete") {
		t.Error("a complete run is said not to be")
	}
	r.Error = "the fault missed"
	if !strings.Contains(html(t, r), "This run is not complete: the fault missed") {
		t.Error("it does not say so")
	}
}

func TestPageOfNothing(t *testing.T) {
	t.Parallel()
	got := html(t, &report.Report{})
	if strings.Contains(got, "<svg") || strings.Contains(got, "Side by side") {
		t.Error("headings and pictures with nothing in them")
	}
}

// A bar is as long as its value, from zero, and all stalls have the same scale.
func TestBarsAreInProportion(t *testing.T) {
	t.Parallel()
	r := small()
	r.Modes = append(r.Modes, r.Modes[0])
	r.Modes[1].Mode, r.Modes[1].OpsPerS = report.ModeUnique, 4
	got := html(t, r)
	rate := got[strings.Index(got, `aria-labelledby="chart-rate-title`):strings.Index(got,
		`aria-labelledby="chart-time-title`)]
	var widths []float64
	for _, m := range regexp.MustCompile(`class="bar" x="\d+" y="\d+" width="([\d.]+)"`).FindAllStringSubmatch(rate, -1) {
		width, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		widths = append(widths, width)
	}
	if len(widths) != 2 || widths[1] < 100 || math.Abs(widths[1]/widths[0]-4) > 0.01 {
		t.Errorf("bars for 1 and 4 are %v long", widths)
	}
}

// luminance and contrast are those of WCAG 2.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 32)
	if err != nil || len(color) != 7 {
		t.Fatalf("%q is no colour", color)
	}
	channel := func(shift uint, weight float64) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return weight * c / 12.92
		}
		return weight * math.Pow((c+0.055)/1.055, 2.4)
	}
	return channel(16, 0.2126) + channel(8, 0.7152) + channel(0, 0.0722)
}

func TestColoursHaveContrast(t *testing.T) {
	t.Parallel()
	light, dark := report.Light(), report.Dark()
	for screen, palette := range map[string]*report.Palette{"light": &light, "dark": &dark} {
		for _, pair := range palette.Pairs() {
			a, b := luminance(t, pair.Over), luminance(t, pair.Under)
			if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < pair.Ratio {
				t.Errorf("%s, %s: %s on %s is %.2f, want %.1f", screen, pair.Name, pair.Over, pair.Under, ratio, pair.Ratio)
			}
		}
	}
	if luminance(t, light.Page) < 0.5 || luminance(t, dark.Page) > 0.1 {
		t.Error("light is not light, or dark not dark")
	}
}
