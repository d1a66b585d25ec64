package otelfencepost

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-pg/fencepost"
)

func (r *recorder) renewedLate(
	ctx context.Context, resource string, tok fencepost.Token, since time.Duration, err error,
) {
	ctx = context.WithoutCancel(ctx)
	record(ctx, r.metrics.renewalLag, since, r.about([]string{resource}, failure(err)...))
	// A span and no event of one: the span of the call that acquired the lease has ended.
	token := keyToken.String(tok.String())
	r.spans.add(ctx, ago("fencepost.renewed_late", trace.SpanKindClient, since, err, token), resource)
}

func (r *recorder) claimWait(ctx context.Context, resource string, tok fencepost.Token, took time.Duration) {
	ctx = context.WithoutCancel(ctx)
	record(ctx, r.metrics.claim, took, r.about([]string{resource}, postgresql))
	token := keyToken.String(tok.String())
	r.spans.add(ctx, ago("fencepost.claim", trace.SpanKindClient, took, nil, token, postgresql), resource)
}

func (r *recorder) reseed(ctx context.Context, resource string, tok, fence fencepost.Token) {
	ctx = context.WithoutCancel(ctx)
	count(ctx, r.metrics.reseeds, r.about([]string{resource}))
	r.spans.note(ctx, "fencepost.reseed", nil, []string{resource}, tokens(tok, fence)...)
}

func (r *recorder) regression(ctx context.Context, resource string, tok, fence fencepost.Token) {
	ctx = context.WithoutCancel(ctx)
	count(ctx, r.metrics.regressions, r.about([]string{resource}))
	r.spans.note(ctx, "fencepost.regression", nil, []string{resource}, tokens(tok, fence)...)
}

func tokens(tok, fence fencepost.Token) []attribute.KeyValue {
	return []attribute.KeyValue{keyToken.String(tok.String()), keyFence.String(fence.String())}
}

func (r *recorder) stale(ctx context.Context, stale *fencepost.StaleError) {
	ctx = context.WithoutCancel(ctx)
	count(ctx, r.metrics.stale, r.about([]string{stale.Resource}, postgresql))
	attrs := tokens(stale.Token, stale.Current)
	if stale.Label != "" {
		attrs = append(attrs, keyLabel.String(stale.Label))
	}
	if !stale.ClaimedAt.IsZero() {
		attrs = append(attrs, keyClaimedAt.String(stale.ClaimedAt.Format(time.RFC3339Nano)))
	}
	r.spans.note(ctx, "fencepost.stale", stale, []string{stale.Resource}, attrs...)
}

func (r *recorder) transacted(ctx context.Context, resources []string, took time.Duration, err error) {
	ctx = context.WithoutCancel(ctx)
	record(ctx, r.metrics.transaction, took, r.about(resources, append(failure(err), postgresql)...))
	r.spans.add(ctx, ago("fencepost.transaction", trace.SpanKindClient, took, err, postgresql), resources...)
}

func (r *recorder) retried(ctx context.Context, resources []string, try int, err error) {
	ctx = context.WithoutCancel(ctx)
	code := keySQLState.String(sqlState(err))
	count(ctx, r.metrics.retries, r.about(resources, code, postgresql))
	r.spans.note(ctx, "fencepost.retry", err, resources, keyTry.Int(try), code)
}

func (r *recorder) settled(ctx context.Context, resources []string, took time.Duration, err error) {
	ctx = context.WithoutCancel(ctx)
	came := keyOutcome.String(outcome(err))
	record(ctx, r.metrics.settle, took, r.about(resources, came, postgresql))
	r.spans.add(ctx, ago("fencepost.settle", trace.SpanKindClient, took, err, came, postgresql), resources...)
}

func (r *recorder) outcomeUnknown(ctx context.Context, resources []string, err error) {
	ctx = context.WithoutCancel(ctx)
	count(ctx, r.metrics.unknown, r.about(resources, postgresql))
	r.spans.note(ctx, "fencepost.outcome_unknown", err, resources)
}
