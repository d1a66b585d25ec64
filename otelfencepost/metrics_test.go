package otelfencepost_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-pg/fencepost"
	"github.com/fencepost-pg/fencepost/otelfencepost"
)

// What happens on real servers is what Prometheus is given; and the dashboard and the alert rules show all of it, and
// nothing else.
func TestWhatHappensIsExported(t *testing.T) {
	t.Parallel()
	service := newScraped(t)
	s := newStory(t, otelfencepost.Options{MeterProvider: service.provider, Attributes: ofStore()})
	_, before := service.fetch(t)
	for _, rare := range []string{
		"fencepost_lease_lost_total", "fencepost_token_reseeds_total", "fencepost_token_regressions_total",
		"fencepost_transaction_retries_total", "fencepost_transaction_stale_total", "fencepost_transaction_unknown_total",
	} {
		if !slices.Contains(before.names(), rare) || before.sum(rare, "store", "billing") != 0 {
			t.Errorf("%s does not begin with 0, so its first increase is not seen", rare)
		}
	}
	s.everything(t.Context())
	text, after := service.fetch(t)
	for _, want := range []struct {
		name, label, value string
		least, most        float64
	}{
		{"fencepost_lease_held", "store", "billing", 0, 0},
		{"fencepost_lease_acquire_duration_seconds_count", "error_type", "", 9, 9},
		{"fencepost_lease_acquire_duration_seconds_count", "error_type", "held", 1, 1},
		{"fencepost_lease_hold_duration_seconds_count", "error_type", "", 6, 7},
		{"fencepost_lease_hold_duration_seconds_count", "error_type", "lost", 1, 2},
		{"fencepost_lease_hold_duration_seconds_count", "error_type", "stale", 1, 1},
		{"fencepost_lease_handoff_duration_seconds_count", "store", "billing", 1, 1},
		{"fencepost_lease_renewal_lag_seconds_count", "store", "billing", 1, 1},
		{"fencepost_lease_renewal_lag_seconds_sum", "store", "billing", 1, 10},
		{"fencepost_lease_lost_total", "fencepost_reason", "gone before its time", 1, 1},
		{"fencepost_lease_lost_total", "fencepost_reason", "stale", 1, 1},
		{"fencepost_token_reseeds_total", "store", "billing", 1, 1},
		{"fencepost_token_regressions_total", "store", "billing", 1, 1},
		{"fencepost_claim_duration_seconds_count", "db_system_name", "postgresql", 9, 20},
		{"fencepost_transaction_duration_seconds_count", "error_type", "", 6, 6},
		{"fencepost_transaction_duration_seconds_count", "error_type", "stale", 1, 1},
		{"fencepost_transaction_duration_seconds_count", "error_type", "unavailable", 1, 1},
		{"fencepost_transaction_duration_seconds_count", "error_type", "outcome_unknown", 1, 1},
		{"fencepost_transaction_retries_total", "db_response_status_code", "40001", 1, 1},
		{"fencepost_transaction_stale_total", "store", "billing", 1, 1},
		{"fencepost_transaction_unknown_total", "store", "billing", 1, 1},
		{"fencepost_commit_settle_duration_seconds_count", "fencepost_outcome", "committed", 1, 1},
		{"fencepost_commit_settle_duration_seconds_count", "fencepost_outcome", "rolled_back", 1, 1},
		{"fencepost_commit_settle_duration_seconds_count", "fencepost_outcome", "unknown", 1, 1},
	} {
		if got := after.sum(want.name, want.label, want.value); got < want.least || got > want.most {
			t.Errorf("%s with %s=%q is %v, want %v to %v", want.name, want.label, want.value, got, want.least, want.most)
		}
	}
	if strings.Contains(text, "4711") {
		t.Error("a resource's name is in the metrics")
	}
	for _, page := range []string{"grafana/fencepost.json", "prometheus/alerts.yml"} {
		for _, missing := range unknownTo(after, expressions(t, page)) {
			t.Errorf("%s: %s", page, missing)
		}
	}
	shown := strings.Join(expressions(t, "grafana/fencepost.json"), "\n")
	for _, name := range after.names() {
		if !strings.Contains(shown, name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	compareWithREADME(t, after)
}

// compareWithREADME checks that the table of the metrics lists those that are exported.
func compareWithREADME(t *testing.T, exported samples) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "`"); strings.HasPrefix(line, "| `fencepost_") {
			listed[cells[1]] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(listed)), exported.names(); !slices.Equal(got, want) {
		t.Errorf("README.md lists %q, and exported are %q", got, want)
	}
}

// MetricResource decides what is recorded of a name. The control for the absence of names above: here they are.
func TestMetricsHaveOfANameWhatTheServiceChose(t *testing.T) {
	t.Parallel()
	service := newScraped(t)
	s := newStory(t, otelfencepost.Options{
		MeterProvider: service.provider,
		MetricResource: func(resource string) string {
			kind, _, _ := strings.Cut(resource, ":")
			return kind
		},
	})
	s.want(s.Store.Do(t.Context(), "invoice:7", nothing), nil)
	s.want(s.Store.Do(t.Context(), "invoice:8", nothing), nil)
	leases := []*fencepost.Lease{s.acquire(t.Context(), "invoice:9", nil), s.acquire(t.Context(), "order:9", nil)}
	s.want(s.Store.Tx(t.Context(), nothing, leases...), nil)
	_, got := service.fetch(t)
	for _, want := range []struct {
		name, resource string
		value          float64
	}{
		{"fencepost_lease_hold_duration_seconds_count", "invoice", 2},
		{"fencepost_lease_held", "invoice", 1},
		{"fencepost_lease_held", "order", 1},
		{"fencepost_transaction_duration_seconds_count", "invoice", 2},
		{"fencepost_transaction_duration_seconds_count", "", 1}, // under leases of two kinds
	} {
		if n := got.sum(want.name, "fencepost_resource", want.resource); n != want.value {
			t.Errorf("%s of %q is %v, want %v", want.name, want.resource, n, want.value)
		}
	}
}

// Leases that are transactions are not held: nothing would tell of their end.
func TestLeasesOfAnAdvisoryTxAreNotCountedAsHeld(t *testing.T) {
	t.Parallel()
	service := newScraped(t)
	s := newStory(t, otelfencepost.Options{})
	for advisory, held := range map[bool]float64{true: 0, false: 2} { // false: the control
		opts := otelfencepost.Options{MeterProvider: service.provider, AdvisoryTx: advisory, Attributes: ofStore()}
		if !advisory {
			opts.Attributes = nil
		}
		events, err := otelfencepost.New(&opts)
		if err != nil {
			t.Fatal(err)
		}
		a, err := fencepost.NewAdvisoryTx(s.Pool, &fencepost.AdvisoryTxOptions{Namespace: s.Namespace, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		s.want(a.Do(t.Context(), "r", nothing), nil)
		s.want(a.Do(t.Context(), "q", nothing), nil)
		store := map[bool]string{true: "billing"}[advisory]
		_, got := service.fetch(t)
		if n := got.sum("fencepost_lease_held", "store", store); n != held {
			t.Errorf("AdvisoryTx=%v: %v are held", advisory, n)
		}
		if n := got.sum("fencepost_lease_acquire_duration_seconds_count", "store", store); n != 2 {
			t.Errorf("AdvisoryTx=%v: %v were acquired", advisory, n)
		}
	}
}
