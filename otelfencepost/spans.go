package otelfencepost

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// mostNames is how many resources of one transaction a span names.
const mostNames = 10

// spans makes the spans.
type spans struct {
	tracer    trace.Tracer
	attrs     []attribute.KeyValue // on each
	resources bool                 // Options.SpanResources
}

// span is one that is over.
type span struct {
	name       string
	kind       trace.SpanKind
	start, end time.Time
	err        error
	attrs      []attribute.KeyValue
	link       trace.SpanContext // to another span, if it is valid
}

// ago returns a span that ends now.
func ago(name string, kind trace.SpanKind, took time.Duration, err error, attrs ...attribute.KeyValue) span {
	now := time.Now()
	return span{name: name, kind: kind, start: now.Add(-took), end: now, err: err, attrs: attrs}
}

// add adds a span about resources, beside those of the context that the call was given.
func (s *spans) add(ctx context.Context, done span, resources ...string) trace.SpanContext {
	options := []trace.SpanStartOption{
		trace.WithSpanKind(done.kind), trace.WithTimestamp(done.start),
	}
	if done.link.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: done.link}))
	}
	_, made := s.tracer.Start(ctx, done.name, options...)
	if !made.IsRecording() { // not sampled, or nobody wants traces
		return made.SpanContext()
	}
	made.SetAttributes(s.attrs...)
	made.SetAttributes(done.attrs...)
	made.SetAttributes(s.names(resources)...)
	if done.err != nil {
		made.SetAttributes(keyError.String(errorType(done.err)))
		made.SetStatus(codes.Error, s.text(done.err))
	}
	made.End(trace.WithTimestamp(done.end))
	return made.SpanContext()
}

// note adds an event to the span of the context that the call was given.
func (s *spans) note(ctx context.Context, name string, err error, resources []string, attrs ...attribute.KeyValue) {
	current := trace.SpanFromContext(ctx)
	if !current.IsRecording() {
		return
	}
	attrs = append(append(attrs, s.attrs...), s.names(resources)...)
	if err != nil {
		attrs = append(attrs, keyError.String(errorType(err)))
	}
	current.AddEvent(name, trace.WithAttributes(attrs...))
}

// text returns what a span says of an error. The error's own text may have the resource's name.
func (s *spans) text(err error) string {
	if s.resources {
		return err.Error()
	}
	return errorType(err)
}

func (s *spans) names(resources []string) []attribute.KeyValue {
	switch {
	case !s.resources || len(resources) == 0:
		return nil
	case len(resources) == 1:
		return []attribute.KeyValue{keyResource.String(resources[0])}
	}
	return []attribute.KeyValue{keyResources.StringSlice(resources[:min(mostNames, len(resources))])}
}
