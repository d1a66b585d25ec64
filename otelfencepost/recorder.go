package otelfencepost

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-pg/fencepost"
)

// New returns events that record metrics and traces. opts may be nil. The error is that of a meter provider which
// refuses a metric.
//
// The events are for one store: those of another would count the same resource's leases as one. They are safe for
// concurrent use, and keep about 4,000 names of resources in memory, beside those that are held. They wait for nothing
// but the providers: a span processor that exports while a span ends (a simple one) must not be used, because some
// events are told inside a transaction.
func New(opts *Options) (fencepost.Events, error) {
	o := opts.withDefaults()
	metrics, err := newInstruments(o.MeterProvider.Meter(scope))
	if err != nil {
		return fencepost.Events{}, err
	}
	metrics.begin(context.Background(), o.Attributes)
	r := &recorder{
		opts: o, metrics: metrics, holdings: &holdings{resources: make(map[string]*history)},
		plain:    metric.WithAttributeSet(attribute.NewSet(o.Attributes...)),
		database: metric.WithAttributeSet(attribute.NewSet(append([]attribute.KeyValue{postgresql}, o.Attributes...)...)),
		spans:    &spans{tracer: o.TracerProvider.Tracer(scope), attrs: o.Attributes, resources: o.SpanResources},
	}
	return fencepost.Events{
		Acquired: r.acquired, Refused: r.refused, Released: r.released, RenewedLate: r.renewedLate, Lost: r.lost,
		Stale: r.stale, Reseed: r.reseed, Regression: r.regression, ClaimWait: r.claimWait, Transacted: r.transacted,
		Retried: r.retried, Settled: r.settled, OutcomeUnknown: r.outcomeUnknown,
	}, nil
}

// recorder turns events into metrics and spans. The context of an event may have ended; its values count.
type recorder struct {
	opts     Options
	metrics  instruments
	spans    *spans
	holdings *holdings
	plain    metric.MeasurementOption // the attributes of most metrics, made once
	database metric.MeasurementOption
}

// about returns the attributes of a metric about resources. It has the resource if all have the same value.
func (r *recorder) about(resources []string, more ...attribute.KeyValue) metric.MeasurementOption {
	value := r.common(resources)
	switch {
	case value != "":
		more = append(more, keyResource.String(value))
	case len(more) == 0:
		return r.plain
	case len(more) == 1 && more[0].Key == keyDatabase:
		return r.database
	}
	return metric.WithAttributes(append(more, r.opts.Attributes...)...)
}

// common returns what metrics record of the resources' names, if it is the same for all.
func (r *recorder) common(resources []string) (value string) {
	for i, resource := range resources {
		v := r.opts.MetricResource(resource)
		if i > 0 && v != value {
			return ""
		}
		value = v
	}
	return value
}

// failure returns error.type, or nothing for success.
func failure(err error) []attribute.KeyValue {
	if err == nil {
		return nil
	}
	return []attribute.KeyValue{keyError.String(errorType(err))}
}

func (r *recorder) acquired(ctx context.Context, resource string, tok fencepost.Token, waited time.Duration) {
	ctx = context.WithoutCancel(ctx)
	attrs := r.about([]string{resource})
	record(ctx, r.metrics.acquire, waited, attrs)
	done := ago("fencepost.acquire", trace.SpanKindClient, waited, nil, keyToken.String(tok.String()))
	if r.opts.AdvisoryTx {
		r.spans.add(ctx, done, resource)
		return
	}
	more, handed := r.holdings.begin(resource, holding{token: tok, asked: done.start, since: done.end})
	r.metrics.held.Add(ctx, more, attrs)
	r.handedOver(ctx, handed, attrs)
	done.link = handed.from
	r.holdings.name(resource, tok, r.spans.add(ctx, done, resource))
}

func (r *recorder) handedOver(ctx context.Context, handed handOff, attrs metric.MeasurementOption) {
	if handed.known {
		record(ctx, r.metrics.handOff, handed.took, attrs)
	}
}

func (r *recorder) refused(ctx context.Context, resource string, waited time.Duration, err error) {
	ctx = context.WithoutCancel(ctx)
	record(ctx, r.metrics.acquire, waited, r.about([]string{resource}, failure(err)...))
	r.spans.add(ctx, ago("fencepost.acquire", trace.SpanKindClient, waited, err), resource)
}

func (r *recorder) released(ctx context.Context, resource string, tok fencepost.Token, held time.Duration) {
	ctx = context.WithoutCancel(ctx)
	attrs, token := r.about([]string{resource}), keyToken.String(tok.String())
	record(ctx, r.metrics.hold, held, attrs)
	l, handed, less := r.holdings.end(resource, tok, &held)
	if l == nil {
		return
	}
	r.metrics.held.Add(ctx, -less, attrs)
	r.handedOver(ctx, handed, attrs)
	hold := ago("fencepost.hold", trace.SpanKindInternal, 0, nil, token)
	hold.start, hold.end, hold.link = l.since, l.until, l.span
	r.spans.add(ctx, hold, resource)
	release := ago("fencepost.release", trace.SpanKindClient, 0, nil, token)
	release.start, release.link = l.until, l.span
	r.spans.add(ctx, release, resource)
}

func (r *recorder) lost(ctx context.Context, resource string, tok fencepost.Token, cause *fencepost.LostError) {
	ctx = context.WithoutCancel(ctx)
	reason := keyReason.String(string(cause.Reason))
	count(ctx, r.metrics.lost, r.about([]string{resource}, reason))
	l, _, less := r.holdings.end(resource, tok, nil)
	if l == nil {
		return // its claim was never made
	}
	hold := ago("fencepost.hold", trace.SpanKindInternal, 0, cause, keyToken.String(tok.String()), reason)
	hold.start, hold.link = l.since, l.span
	r.metrics.held.Add(ctx, -less, r.about([]string{resource}))
	record(ctx, r.metrics.hold, hold.end.Sub(hold.start), r.about([]string{resource}, failure(cause)...))
	r.spans.add(ctx, hold, resource)
}
