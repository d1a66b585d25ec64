package otelfencepost_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver is what a collector is to a service: it gets the spans by OTLP over HTTP.
type receiver struct {
	provider *sdk.TracerProvider
	mu       sync.Mutex
	bodies   []string
	spans    []*trace.Span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.add(string(body), &export)
	}))
	t.Cleanup(server.Close)
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	r.provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter))
	return r
}

func (r *receiver) add(body string, export *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, body)
	for _, resource := range export.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
}

// received flushes, and returns the spans by their name, and the bodies of all requests.
func (r *receiver) received(t *testing.T) (spans map[string][]*trace.Span, bodies []string) {
	t.Helper()
	if err := r.provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	spans = make(map[string][]*trace.Span)
	for _, s := range r.spans {
		spans[s.Name] = append(spans[s.Name], s)
	}
	return spans, r.bodies
}

// attributes returns the attributes of a span as text. Lists are their first element.
func attributes(s *trace.Span) map[string]string {
	all := make(map[string]string)
	for _, a := range s.Attributes {
		value := a.Value.GetStringValue()
		if list := a.Value.GetArrayValue().GetValues(); len(list) > 0 {
			value = list[0].GetStringValue()
		}
		all[a.Key] = value
	}
	return all
}
