package otelfencepost_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// expressions returns the queries of a dashboard or of alert rules: the value of each key "expr", and those of
// variables.
func expressions(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parse := yaml.Unmarshal
	if filepath.Ext(file) == ".json" {
		parse = json.Unmarshal
	}
	var page any
	if err := parse(text, &page); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	found := find(page)
	if len(found) < 10 {
		t.Errorf("%s has %d queries: the test shows too little", file, len(found))
	}
	return found
}

func find(in any) (found []string) {
	switch in := in.(type) {
	case map[string]any:
		for key, value := range in {
			if text, ok := value.(string); ok && (key == "expr" || key == "query") && strings.Contains(text, "fencepost_") {
				found = append(found, text)
			}
			found = append(found, find(value)...)
		}
	case []any:
		for _, value := range in {
			found = append(found, find(value)...)
		}
	}
	return found
}

var (
	metricName = regexp.MustCompile(`\bfencepost_\w+`)
	byLabels   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matchers   = regexp.MustCompile(`\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
)

// unknownTo says which metrics and labels queries name that are not exported. The labels job and instance are
// Prometheus's own.
func unknownTo(exported samples, queries []string) (missing []string) {
	labels := []string{"job", "instance"}
	var names []string
	for _, s := range exported {
		names = append(names, s.name)
		for label := range s.labels {
			labels = append(labels, label)
		}
	}
	for _, query := range queries {
		var used []string
		for _, m := range byLabels.FindAllStringSubmatch(query, -1) {
			used = append(used, strings.Split(m[1], ", ")...)
		}
		for _, m := range matchers.FindAllStringSubmatch(query, -1) {
			for _, label := range matcher.FindAllStringSubmatch(m[1], -1) {
				used = append(used, label[1])
			}
		}
		for _, label := range used {
			if !slices.Contains(labels, label) {
				missing = append(missing, fmt.Sprintf("no label %s, in %s", label, query))
			}
		}
		for _, name := range metricName.FindAllString(query, -1) {
			if !slices.Contains(names, name) && !slices.Contains(labels, name) {
				missing = append(missing, fmt.Sprintf("no metric %s, in %s", name, query))
			}
		}
	}
	return missing
}

// The control: what is not exported is found.
func TestAQueryOfWhatIsNotExportedIsFound(t *testing.T) {
	t.Parallel()
	exported := samples{{name: "fencepost_x_total", labels: map[string]string{"fencepost_reason": "stale"}}}
	for query, want := range map[string]int{
		`sum by (job, fencepost_reason) (rate(fencepost_x_total{job=~"$job"}[5m]))`: 0,
		`rate(fencepost_y_total[5m])`:                              1,
		`sum by (le) (fencepost_x_total)`:                          1,
		`fencepost_x_total{fencepost_reason="a", error_type!="b"}`: 1,
	} {
		if got := unknownTo(exported, []string{query}); len(got) != want {
			t.Errorf("%s: %q", query, got)
		}
	}
}
