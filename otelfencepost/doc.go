// Package otelfencepost records what a [fencepost.Store] reports as OpenTelemetry metrics and traces.
//
//	events, err := otelfencepost.New(nil) // the global providers
//	if err != nil {
//		return err
//	}
//	store, err := fencepost.New(pool, rdb, &fencepost.Options{Namespace: "billing", Events: events})
//
// [Chain] joins these events with a service's own. The folder grafana has a dashboard, and prometheus has alert rules.
// README.md lists the metrics and the spans.
//
// # Names of resources
//
// A resource's name may identify a customer, and there may be millions of them. So no metric and no span has it, nor
// the text of an error, which may contain it, unless [Options].SpanResources or [Options].MetricResource say so. A
// token is an attribute of spans alone, as a string of decimal digits: readers that treat numbers as doubles lose
// digits above 2^53.
//
// # Time
//
// The events tell of what has happened, so a span is made when it is over, with the times of its start and its end. Its
// parent is the span of the context that the call was given. The spans of one call are therefore siblings.
package otelfencepost
