package report_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
	"github.com/fencepost-pg/fencepost/bench/compare/report/sample"
	"github.com/fencepost-pg/fencepost/bench/figure"
)

// small is a report with one of each.
func small() *report.Report {
	target, missed := 0.75, false
	return &report.Report{
		Cells: []report.Cell{
			{
				Mode:              report.ModeNone,
				Workload:          report.WorkloadCounter,
				Fault:             report.FaultPause,
				Keyed:             true,
				Operations:        9,
				Accepted:          8,
				Refused:           7,
				RefusedByPostgres: 3,
				LostUpdates:       6,
				Duplicates:        5,
				Unbalanced:        2,
				Unknown:           4,
				UnavailableS:      0.25,
			},
		},
		LeftOut: []report.LeftOut{
			{Mode: report.ModeUnique, Workload: report.WorkloadCounter, Fault: report.FaultPause, Reason: "it only inserts"},
		},
		Modes: []report.ModeFigures{{
			Mode: report.ModeNone, OpsPerS: 1, P50MS: 2, P99MS: 3, ConnectionsHeld: 4, RoundTripsRedis: 5, RoundTripsPostgres: 6,
		}},
		Figures: []report.Figure{
			{
				Figure: figure.Figure{
					Name:    "a",
					Value:   3,
					Unit:    "writes/s",
					Against: "b",
					Ratio:   0.5,
					Target:  &target,
					Met:     &missed,
				},
			},
			{Figure: figure.Figure{Name: "c", Value: 1, Unit: "ms", Against: "d", Ratio: 1}},
		},
		Versions: map[string]string{"go": "go1.26"},
		Settings: report.Settings{
			Seed:              math.MaxUint64,
			DurationS:         2.5,
			TTLS:              0.5,
			Workers:           3,
			Quick:             true,
			Command:           "fencepost compare",
			Date:              time.Unix(0, 0).UTC(),
			Fsync:             "on",
			SynchronousCommit: "off",
		},
	}
}

// smallJSON spells out every key that a reader may rely on.
const smallJSON = `{"cells":[` +
	`{"mode":"none","workload":"counter","fault":"pause","keyed":true,"operations":9,"accepted":8,` +
	`"refused":7,"refused_by_postgres":3,` +
	`"lost_updates":6,"duplicates":5,"unbalanced":2,"unknown":4,"unavailable_s":0.25}],` +
	`"left_out":[{"mode":"unique","workload":"counter","fault":"pause","keyed":false,"reason":"it only inserts"}],` +
	`"modes":[{"mode":"none","ops_per_s":1,"p50_ms":2,"p99_ms":3,` +
	`"connections_held":4,"round_trips_redis":5,"round_trips_postgres":6}],` +
	`"figures":[{"name":"a","value":3,"unit":"writes/s","against":"b","ratio":0.5,"target":0.75,"met":false},` +
	`{"name":"c","value":1,"unit":"ms","against":"d","ratio":1,"target":null,"met":null}],` +
	`"versions":{"go":"go1.26"},` +
	`"settings":{"seed":"18446744073709551615","duration_s":2.5,"ttl_s":0.5,"workers":3,` +
	`"quick":true,"command":"fencepost compare",` +
	`"date":"1970-01-01T00:00:00Z","fsync":"on","synchronous_commit":"off"}}`

func TestJSONHasTheseKeys(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(small())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != smallJSON {
		t.Errorf("got\n%s\nwant\n%s", got, smallJSON)
	}
}

func TestJSONSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]*report.Report{"small": small(), "large": sample.Report()} {
		var text bytes.Buffer
		if err := report.JSON(&text, want); err != nil {
			t.Fatal(err)
		}
		var got report.Report
		if err := json.Unmarshal(text.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestWhatIsEmptyIsAListInJSON(t *testing.T) {
	t.Parallel()
	for _, r := range []any{report.Report{}, &report.Report{}, struct{ R report.Report }{}} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"cells":[]`, `"left_out":[]`, `"modes":[]`, `"figures":[]`, `"versions":{}`} {
			if !strings.Contains(string(text), part) {
				t.Errorf("no %s in %s", part, text)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, r := range []*report.Report{{}, small(), sample.Report()} {
		if err := r.Validate(); err != nil {
			t.Errorf("a report as it should be: %v", err)
		}
	}
	for want, spoil := range map[string]func(*report.Report){
		"UnavailableS is NaN":     func(r *report.Report) { r.Cells[0].UnavailableS = math.NaN() },
		"UnavailableS is -1":      func(r *report.Report) { r.Cells[0].UnavailableS = -1 },
		"LostUpdates is -1":       func(r *report.Report) { r.Cells[0].LostUpdates = -1 },
		"8 of 7 operations":       func(r *report.Report) { r.Cells[0].Operations = 7 },
		"8 of 7 refusals":         func(r *report.Report) { r.Cells[0].RefusedByPostgres = 8 },
		`"hope" is no mode`:       func(r *report.Report) { r.Cells[0].Mode = "hope" },
		`"" is no workload`:       func(r *report.Report) { r.Cells[0].Workload = "" },
		`"fire" is no fault`:      func(r *report.Report) { r.Cells[0].Fault = "fire" },
		"there twice":             func(r *report.Report) { r.Cells = append(r.Cells, r.Cells[0]) },
		"P99MS is +Inf":           func(r *report.Report) { r.Modes[0].P99MS = math.Inf(1) },
		`"faith" is no mode`:      func(r *report.Report) { r.Modes[0].Mode = "faith" },
		"Ratio is NaN":            func(r *report.Report) { r.Figures[0].Ratio = math.NaN() },
		"the target is +Inf":      func(r *report.Report) { *r.Figures[0].Target = math.Inf(1) },
		"settings: TTLS is NaN":   func(r *report.Report) { r.Settings.TTLS = math.NaN() },
		"settings: Workers is -1": func(r *report.Report) { r.Settings.Workers = -1 },
	} {
		r := small()
		spoil(r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// The same mode may appear twice if one entry has a key and the other has none.
func TestKeyedCellsAreCellsOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := small()
	r.Cells = append(r.Cells, r.Cells[0])
	r.Cells[1].Keyed = false
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}
