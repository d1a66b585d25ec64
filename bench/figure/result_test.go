package figure_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

func series(name string, target float64, rates ...float64) measure.Series {
	s := measure.Series{Name: name, Target: target}
	for _, rate := range rates {
		s.Samples = append(s.Samples, measure.Sample{Rate: rate, Allocs: rate / 10, Bytes: rate * 2})
	}
	return s
}

// results has two comparisons: one with a target that is narrowly missed and one that is met exactly, and one without
// targets.
func results() []measure.Result {
	return []measure.Result{
		{Title: "first job", Unit: "call", Series: []measure.Series{
			series(
				"by hand",
				0,
				1000,
				1000,
				1000,
			),
			series("short of it", 0.9, 899, 899, 899),
			series("just so", 0.9, 900, 100, 900),
		}},
		{Title: "second job", Unit: "call", Series: []measure.Series{series("<plain>", 0, 40), series("rich", 0, 10)}},
	}
}

func decode(t *testing.T, text []byte) []map[string]any {
	t.Helper()
	var rows []map[string]any
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// row is an element of the JSON, without its name.
func row(value float64, unit, against string, ratio float64, target, met any) map[string]any {
	return map[string]any{
		"value": value, "unit": unit, "against": against, "ratio": ratio, "target": target, "met": met,
	}
}

func TestJSONOfResults(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := figure.JSON(&b, figure.OfResults(results())); err != nil {
		t.Fatal(err)
	}
	rows := decode(t, b.Bytes())
	if len(rows) != 5*3 {
		t.Fatalf("got %d figures, want 3 for each of 5 candidates", len(rows))
	}
	want := map[string]map[string]any{
		"by hand":           row(1000.0, "calls/s", "by hand", 1.0, nil, nil),
		"short of it":       row(899.0, "calls/s", "by hand", 0.899, 0.9, false),
		"just so":           row(900.0, "calls/s", "by hand", 0.9, 0.9, true),
		"<plain>":           row(40.0, "calls/s", "<plain>", 1.0, nil, nil),
		"rich":              row(10.0, "calls/s", "<plain>", 0.25, nil, nil),
		"rich: allocations": row(1.0, "allocs/call", "<plain>: allocations", 0.25, nil, nil),
		"rich: bytes":       row(20.0, "bytes/call", "<plain>: bytes", 0.25, nil, nil),
	}
	for _, got := range rows {
		name := got["name"].(string)
		delete(got, "name")
		if w, ok := want[name]; ok && !reflect.DeepEqual(got, w) {
			t.Errorf("%s is %v, want %v", name, got, w)
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("not in the JSON: %v", want)
	}
}

func TestNothingMeasuredIsAnEmptyArray(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := figure.JSON(&b, figure.OfResults(nil)); err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(b.String()) != "[]" {
		t.Errorf("got %q, want []", b.String())
	}
}

func TestNoAllocationsAgainstNone(t *testing.T) {
	t.Parallel()
	none := measure.Series{Name: "none", Samples: []measure.Sample{{Rate: 1}}}
	some := measure.Series{Name: "some", Samples: []measure.Sample{{Rate: 1, Allocs: 1, Bytes: 8}}}
	var b bytes.Buffer
	// JSON has no infinity and would refuse it.
	if err := figure.JSON(
		&b,
		figure.OfResults([]measure.Result{{Series: []measure.Series{none, none, some}}}),
	); err != nil {
		t.Fatal(err)
	}
	if ratio := decode(t, b.Bytes())[4]["ratio"]; ratio != 1.0 {
		t.Errorf("no allocations against none are a ratio of %v, want 1", ratio)
	}
}

func TestJSONFileOfResultsIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "figures.json")
	for range 2 {
		if err := figure.JSONFile(path, figure.OfResults(results())); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if rows := decode(t, text); len(rows) != 15 {
		t.Errorf("got %d figures, want 15", len(rows))
	}
	if err := figure.JSONFile(filepath.Join(path, "below-a-file"), figure.OfResults(results())); err == nil {
		t.Error("got no error for a path that cannot be")
	}
}

func TestTableOfResults(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := figure.Results(&b, results()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`first job`,
		`calls/s +ratio +middle half +target +met +allocs +bytes`,
		`1000 +1\.000 +1\.000 to 1\.000 +- +- +100 +2000 +by hand`,
		`899 +0\.899 +0\.899 to 0\.899 +0\.90 +NO +90 +1798 +short of it`,
		`900 +0\.900 +0\.500 to 0\.900 +0\.90 +yes +90 +1800 +just so`,
		`second job`,
		`10 +0\.250 +0\.250 to 0\.250 +- +- +1 +20 +rich`,
	} {
		if !regexp.MustCompile(`(?m)^ *` + line + ` *$`).MatchString(b.String()) {
			t.Errorf("no line like %q in the table:\n%s", line, b.String())
		}
	}
}
