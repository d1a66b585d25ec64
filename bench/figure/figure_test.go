package figure_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/fencepost-pg/fencepost/bench/figure"
	"github.com/fencepost-pg/fencepost/bench/measure"
)

func of(ratio float64) figure.Figure {
	return figure.New(
		"ours",
		"ms",
		measure.Spread{Low: 1, Median: 2, High: 3},
		"theirs",
		measure.Spread{Low: 0.5, Median: ratio, High: 9},
	)
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		be    figure.Want
		ratio float64
		want  bool
	}{
		{figure.AtLeast, 0.99, false},
		{figure.AtLeast, 1, true},
		{figure.AtMost, 1, true},
		{figure.AtMost, 1.01, false},
		{figure.Below, 1, false},
		{figure.Below, 0.99, true},
		{"near", 1, false},
	}
	for _, tt := range tests {
		if got := of(tt.ratio).Should(tt.be, 1).Met; got == nil || *got != tt.want {
			t.Errorf("%v %s 1 is met: %v, want %v", tt.ratio, tt.be, got, tt.want)
		}
	}
}

func TestJSONFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "figures.json")
	// the second replaces the first
	for _, figures := range [][]figure.Figure{nil, {of(1.5), of(1.5).Should(figure.Below, 1)}} {
		if err := figure.JSONFile(path, figures); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		want := []map[string]any{}
		for i := range figures {
			want = append(want, map[string]any{
				"name": "ours", "value": 2.0, "unit": "ms", "against": "theirs", "ratio": 1.5,
				"target": []any{nil, 1.0}[i], "met": []any{nil, false}[i],
			})
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if err := figure.JSONFile(filepath.Join(path, "below-a-file"), nil); err == nil {
		t.Error("got no error for a path that cannot be")
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := figure.Targets(
		&b,
		[]figure.Figure{of(7), of(1.5).Should(figure.Below, 1), of(0.9).Should(figure.AtMost, 1)},
	); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^\ntargets .*
 +ratio +middle half +target +met *
 +1\.500 +0\.500 to 9\.000 +< 1\.00 +NO +ours, to theirs
 +0\.900 +0\.500 to 9\.000 +<= 1\.00 +yes +ours, to theirs
$`)
	if !want.Match(b.Bytes()) {
		t.Errorf("got\n%s", b.String())
	}
}
