package otelfencepost_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	api "go.opentelemetry.io/otel/trace"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fencepost-pg/fencepost/otelfencepost"
)

// traced lets everything happen under one span, and returns what a collector receives.
func traced(
	t *testing.T, opts otelfencepost.Options,
) (spans map[string][]*trace.Span, bodies []string, root api.SpanContext) {
	t.Helper()
	r := newReceiver(t)
	opts.TracerProvider = r.provider
	s := newStory(t, opts)
	ctx, span := r.provider.Tracer("service").Start(t.Context(), "request")
	s.everything(ctx)
	s.want(s.Store.Tx(ctx, nothing, s.acquire(ctx, "customer-4711:a", nil), s.acquire(ctx, "customer-4711:b", nil)), nil)
	span.End()
	spans, bodies = r.received(t)
	return spans, bodies, span.SpanContext()
}

// Each span that a collector receives belongs to the span of the call, has the store's attributes, and names neither a
// resource nor an error's text.
func TestACollectorReceivesSpansOfTheCall(t *testing.T) {
	t.Parallel()
	spans, bodies, root := traced(t, otelfencepost.Options{Attributes: ofStore()})
	id := root.SpanID()
	for _, name := range []string{
		"fencepost.acquire", "fencepost.claim", "fencepost.transaction", "fencepost.release", "fencepost.hold",
		"fencepost.settle", "fencepost.renewed_late",
	} {
		if len(spans[name]) == 0 {
			t.Errorf("no span %s", name)
		}
		for _, s := range spans[name] {
			if !bytes.Equal(s.ParentSpanId, id[:]) {
				t.Errorf("%s has the parent %x, want %x", name, s.ParentSpanId, id[:])
			}
			if attributes(s)["store"] != "billing" {
				t.Errorf("%s has the attributes %v", name, attributes(s))
			}
			if s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s ends before it starts", name)
			}
		}
	}
	var noted []string
	for _, event := range spans["request"][0].Events {
		noted = append(noted, event.Name)
	}
	for _, name := range []string{
		"fencepost.reseed", "fencepost.regression", "fencepost.stale", "fencepost.retry", "fencepost.outcome_unknown",
	} {
		if !slices.Contains(noted, name) {
			t.Errorf("no event %s in the span of the call", name)
		}
	}
	if strings.Contains(strings.Join(bodies, ""), "4711") {
		t.Error("a resource's name is in the traces")
	}
}

// The control for the absence of names, and what they are named.
func TestSpansNameResourcesIfTheServiceWantsThat(t *testing.T) {
	t.Parallel()
	spans, _, _ := traced(t, otelfencepost.Options{SpanResources: true})
	var several bool
	for name, all := range spans {
		for _, s := range all {
			got := attributes(s)
			several = several || got["fencepost.resources"] == "customer-4711:a"
			named := got["fencepost.resource"] + got["fencepost.resources"]
			if name != "request" && !strings.HasPrefix(named, "customer-4711:") {
				t.Errorf("%s names %q", name, named)
			}
		}
	}
	if !several {
		t.Error("a transaction under two leases does not name the first")
	}
	failed := slices.IndexFunc(spans["fencepost.acquire"], func(s *trace.Span) bool { return s.Status.GetMessage() != "" })
	if failed < 0 || !strings.Contains(spans["fencepost.acquire"][failed].Status.Message, "4711") {
		t.Error("no refused acquire has its error's text")
	}
}

// A waiter's acquire spans its wait, and leads to the holder that it waited for. A token is a string of digits.
func TestTheSpanOfAWaiterLeadsToTheHolder(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := newStory(t, otelfencepost.Options{TracerProvider: r.provider})
	s.handOff(t.Context())
	spans, _ := r.received(t)
	byToken := make(map[string]*trace.Span)
	for _, a := range spans["fencepost.acquire"] {
		byToken[attributes(a)["fencepost.token"]] = a
	}
	first, waiter := byToken["1"], byToken["2"]
	if first == nil || waiter == nil {
		t.Fatalf("the tokens are %v", byToken)
	}
	if len(first.Links) != 0 || len(waiter.Links) != 1 || !bytes.Equal(waiter.Links[0].SpanId, first.SpanId) {
		t.Errorf("the first leads to %v, the waiter to %v", first.Links, waiter.Links)
	}
	for _, release := range spans["fencepost.release"] {
		if attributes(release)["fencepost.token"] == "1" &&
			(waiter.StartTimeUnixNano >= release.StartTimeUnixNano || waiter.EndTimeUnixNano <= release.StartTimeUnixNano) {
			t.Errorf("the waiter's span does not cover the release: %v, %v", waiter, release)
		}
	}
	for _, hold := range spans["fencepost.hold"] {
		own := byToken[attributes(hold)["fencepost.token"]]
		if len(hold.Links) != 1 || !bytes.Equal(hold.Links[0].SpanId, own.SpanId) {
			t.Errorf("a hold leads to %v, and not to its acquire", hold.Links)
		}
	}
}
