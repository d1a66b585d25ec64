package otelfencepost

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options are the settings of [New]. The zero value, and a nil pointer, mean the defaults.
type Options struct {
	// MeterProvider makes the metrics. Default: otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Default: otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// Attributes are on each metric and each span, for example the namespace if a process has several stores. Default:
	// none.
	Attributes []attribute.KeyValue
	// SpanResources records the names of resources, and the texts of errors, in spans. Default false.
	SpanResources bool
	// MetricResource returns what metrics record of a resource's name, for example the part before its first colon.
	// Each value is a time series for each metric. "" records nothing. It must be safe for concurrent use. Default:
	// nothing is recorded.
	MetricResource func(resource string) string
	// AdvisoryTx says that the events are for a [fencepost.AdvisoryTx]. Its leases are transactions, and no event tells
	// of their end, so they are not counted as held. Default false: for a [fencepost.Store].
	AdvisoryTx bool
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.MeterProvider == nil {
		v.MeterProvider = otel.GetMeterProvider()
	}
	if v.TracerProvider == nil {
		v.TracerProvider = otel.GetTracerProvider()
	}
	if v.MetricResource == nil {
		v.MetricResource = func(string) string { return "" }
	}
	return v
}
