package otelfencepost_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// scraped is a service whose metrics Prometheus can fetch.
type scraped struct {
	provider *sdk.MeterProvider
	url      string
}

func newScraped(t *testing.T) *scraped {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return &scraped{provider: sdk.NewMeterProvider(sdk.WithReader(reader)), url: server.URL}
}

// sample is a line of what Prometheus is given.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// fetch returns the text that Prometheus is given, and the samples of fencepost's metrics in it.
func (s *scraped) fetch(t *testing.T) (text string, all samples) {
	t.Helper()
	reply, err := http.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", reply.StatusCode, err)
	}
	lines := regexp.MustCompile(`(?m)^(fencepost_\w+)(?:\{(.*)\})? (\S+)$`)
	for _, m := range lines.FindAllStringSubmatch(string(body), -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		labels := make(map[string]string)
		for _, l := range regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		all = append(all, sample{m[1], labels, value})
	}
	return string(body), all
}

type samples []sample

// sum adds up the samples of a metric that have a label's value. "" is that of a label which a sample lacks.
func (all samples) sum(name, label, value string) (sum float64) {
	for _, s := range all {
		if s.name == name && s.labels[label] == value {
			sum += s.value
		}
	}
	return sum
}

// names returns the names of the metrics, without the suffixes of a histogram's parts.
func (all samples) names() []string {
	var names []string
	for _, s := range all {
		names = append(names, regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(s.name, ""))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
