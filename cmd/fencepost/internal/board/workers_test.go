package board

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// worker is a worker's metrics as the Prometheus exporter of OpenTelemetry writes them.
const worker = `# TYPE fencepost_lease_held gauge
fencepost_lease_held{otel_scope_name="x"} 2
# TYPE fencepost_lease_lost_total counter
fencepost_lease_lost_total{fencepost_reason="clock"} %d
fencepost_lease_lost_total{fencepost_reason="server unreachable"} 1
# TYPE fencepost_transaction_stale_total counter
fencepost_transaction_stale_total{db_system_name="postgresql"} 4
# TYPE fencepost_lease_acquire_duration_seconds histogram
fencepost_lease_acquire_duration_seconds_bucket{le="+Inf"} 9
fencepost_lease_acquire_duration_seconds_sum 1
fencepost_lease_acquire_duration_seconds_count 9
fencepost_lease_acquire_duration_seconds_bucket{error_type="held",le="+Inf"} 5
fencepost_lease_acquire_duration_seconds_sum{error_type="held"} 1
fencepost_lease_acquire_duration_seconds_count{error_type="held"} 5
# TYPE fencepost_lease_handoff_duration_seconds histogram
fencepost_lease_handoff_duration_seconds_bucket{le="0.001"} 0
fencepost_lease_handoff_duration_seconds_bucket{le="0.003"} 10
fencepost_lease_handoff_duration_seconds_bucket{le="+Inf"} 10
fencepost_lease_handoff_duration_seconds_sum 0.02
fencepost_lease_handoff_duration_seconds_count 10
`

func TestWorkersAreAddedUp(t *testing.T) {
	t.Parallel()
	var lost, status atomic.Int64
	lost.Store(6)
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = fmt.Fprintf(w, worker, lost.Load())
	}))
	defer server.Close()
	silent := httptest.NewServer(nil)
	silent.Close()
	w := newWorkers([]string{server.URL, server.URL + "/second", silent.URL})
	want := func(what string, want Workers) {
		t.Helper()
		got := *w.ask(t.Context())
		if got.HandOffs != 20 || math.Abs(got.HandOffMS-2) > 0.001 || math.Abs(got.HandOffP99MS-2.98) > 0.001 {
			t.Errorf("%s: the hand-offs are %+v", what, got)
		}
		got.HandOffs, got.HandOffMS, got.HandOffP99MS = 0, 0, 0
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	want("at first", Workers{Asked: 3, Answered: 2, Held: 4, Lost: 14, Refused: 8, HeldOff: 10})
	lost.Store(7)
	want("later", Workers{Asked: 3, Answered: 2, Held: 4, Lost: 16, Refused: 8, HeldOff: 10, LostNew: 2})
	status.Store(http.StatusInternalServerError)
	want("silent", Workers{Asked: 3, Lost: 16, Refused: 8, HeldOff: 10, LostNew: 2})
	status.Store(http.StatusOK)
	lost.Store(0) // began again
	want("after a restart", Workers{Asked: 3, Answered: 2, Held: 4, Lost: 2, Refused: 8, HeldOff: 10, LostNew: 4})
	if newWorkers(nil).ask(t.Context()) != nil {
		t.Error("nobody was asked, and somebody answered")
	}
}

func TestQuantiles(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, tt := range []struct {
		b       buckets
		q, want float64
	}{
		{buckets{}, 0.5, 0},
		{buckets{inf: 0}, 0.5, 0},
		{buckets{1: 10, inf: 10}, 0.5, 0.5},
		{buckets{1: 0, 2: 10, inf: 10}, 0.5, 1.5},
		{buckets{1: 0, inf: 10}, 0.5, 1}, // beyond the last bound
		{buckets{1: 5, 2: 5, 3: 10, inf: 10}, 0.5, 1},
	} {
		if got := tt.b.quantile(tt.q); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v: %v is %v, want %v", tt.b, tt.q, got, tt.want)
		}
	}
}

// The names that are read are those that otelfencepost exports: its own test compares its table with its metrics.
func TestTheNamesAreThoseOfOtelfencepost(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../../../../otelfencepost/README.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("workers.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for part := range strings.SplitSeq(string(code), `"`) {
		if !strings.HasPrefix(part, "fencepost_") {
			continue
		}
		found++
		if !strings.Contains(string(table), "| `"+part+"` |") {
			t.Errorf("otelfencepost exports no %s", part)
		}
	}
	if found != 5 {
		t.Errorf("%d names are read, want 5", found)
	}
}
