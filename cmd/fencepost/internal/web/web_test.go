package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/web"
	"github.com/fencepost-pg/fencepost/lease"
)

const bad = `<script>alert(1)</script>`

// page is a look with names that nobody should choose.
func page() *board.Page {
	at := time.Date(2026, 12, 1, 2, 14, 5, 0, time.UTC)
	return &board.Page{
		At: at, Since: at.Add(-time.Minute), Namespace: bad, TookMS: 3,
		Totals: board.Totals{
			Held:      2,
			Waiting:   5,
			WaitedFor: 1,
			Overtaken: 1,
			HandOffs:  4,
			Claims:    9,
			Fences:    12,
			TurnMS:    1500,
		},
		Leases: []board.Row{
			{Resource: bad, Standing: lease.Held, Holder: `"><img src=x onerror=alert(2)>`, Token: 7, Waiting: 5},
			{Resource: "a\u202eb\x07", Standing: lease.Held, Holder: "host-a/1", Token: 8, Overtaken: true},
		},
	}
}

func newSite(t *testing.T, edit func(*web.Options)) (*web.Site, http.Handler) {
	t.Helper()
	o := web.Options{
		Namespace: bad,
		Every:     2 * time.Second,
		Version:   "v1",
		LocalOnly: true,
		Clean:     func(error) string { return "cleaned " + bad },
	}
	if edit != nil {
		edit(&o)
	}
	s := web.New(o)
	return s, s.Handler()
}

// get asks for a path at a host.
func get(h http.Handler, method, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const here = "127.0.0.1:7443"

// Names come from whoever acquires: none of them becomes part of the page's code.
func TestNamesAreShownAsText(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	for name, shot := range map[string]board.Shot{
		"a page":    {Page: page()},
		"a problem": {Page: page(), Problem: errors.New("postgres://u:hunter2@h/d"), Since: time.Now()},
		"nothing":   {},
	} {
		site.Show(shot)
		for _, path := range []string{"/", "/?sort=name", "/?sort=" + "%3Cscript%3E"} {
			got := get(h, "GET", here, path)
			text := got.Body.String()
			if got.Code != 200 || strings.Contains(text, bad) || strings.Contains(text, "<img") ||
				strings.Contains(text, "hunter2") ||
				strings.ContainsAny(text, "\x07\u202e") {
				t.Errorf("%s %s: %d %s", name, path, got.Code, text)
			}
			if shot.Page != nil && !strings.Contains(text, "&lt;script&gt;alert(1)&lt;/script&gt;") {
				t.Errorf("%s: the name is not there: %s", name, text)
			}
			if shot.Problem != nil && !strings.Contains(text, "cleaned &lt;script") {
				t.Errorf("%s: the problem is not there: %s", name, text)
			}
		}
	}
}

// Nothing on the page comes from elsewhere, and the browser is told to hold it to that.
func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	seen := page()
	seen.Leases[0].Holder = "host-a/1" // without a name that looks like code
	site.Show(board.Shot{Page: seen})
	for _, path := range []string{"/", "/style.css", "/live.js", "/metrics", "/board.json", "/healthz", "/nowhere"} {
		got := get(h, "GET", here, path)
		csp := got.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") ||
			got.Header().Get("X-Content-Type-Options") != "nosniff" || got.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, got.Header())
		}
		if want := map[bool]int{true: 404, false: 200}[path == "/nowhere"]; got.Code != want {
			t.Errorf("%s: %d", path, got.Code)
		}
		if path == "/" || strings.Contains(path, ".css") || strings.Contains(path, ".js") && path != "/board.json" {
			if from := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]|@import|url\(`).FindString(got.Body.String()); from != "" {
				t.Errorf("%s names %q", path, from)
			}
		}
	}
	text := get(h, "GET", here, "/").Body.String()
	if inline := regexp.MustCompile(`(?i)<style|<script>|\son[a-z]+=|style=|javascript:`).FindString(text); inline != "" {
		t.Errorf("the page has %q, which its policy forbids", inline)
	}
}

// It is read-only, and a foreign name that leads to this machine reads nothing.
func TestWhoIsAnswered(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	site.Show(board.Shot{Page: page()})
	for host, want := range map[string]int{
		"127.0.0.1:7443": 200, "localhost:7443": 200, "[::1]:7443": 200, "localhost": 200,
		"127.0.0.1": 200, "LOCALHOST:1": 200, "[::1]": 200,
		"rebound.example:7443": 421, "localhost.rebound.example": 421, "10.0.0.1": 421, "": 421, "0.0.0.0:7443": 421,
	} {
		for _, path := range []string{"/", "/board.json", "/metrics", "/healthz"} {
			if got := get(h, "GET", host, path).Code; got != want {
				t.Errorf("%s of %q: %d, want %d", path, host, got, want)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if got := get(h, method, here, "/").Code; got != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, got)
		}
	}
	if got := get(h, "HEAD", here, "/").Code; got != 200 {
		t.Errorf("HEAD: %d", got)
	}
	_, open := newSite(t, func(o *web.Options) { o.LocalOnly = false })
	if got := get(open, "GET", "any.example", "/").Code; got != 200 {
		t.Errorf("exposed: %d", got)
	}
}

// One rendering serves all that ask between two looks.
func TestAPageIsMadeOncePerLook(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	seen := page()
	site.Show(board.Shot{Page: seen})
	first := get(h, "GET", here, "/?sort=held").Body.String()
	seen.Leases[0].Holder = "changed" // which must not be done: it shows whether the page is made again
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got := get(h, "GET", here, "/?sort=held").Body.String(); got != first {
				t.Error("the page was made again")
			}
		})
	}
	all.Wait()
	site.Show(board.Shot{Page: seen})
	if got := get(h, "GET", here, "/?sort=held").Body.String(); !strings.Contains(got, "changed") {
		t.Error("the page of an earlier look is shown")
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	for _, tt := range []struct {
		shot board.Shot
		want int
		says string
	}{
		{board.Shot{}, 503, "has not looked"},
		{board.Shot{Page: page()}, 200, "ok"},
		{board.Shot{Page: page(), Problem: errors.New("x")}, 503, "cleaned"},
	} {
		site.Show(tt.shot)
		if got := get(h, "GET", here, "/healthz"); got.Code != tt.want || !strings.Contains(got.Body.String(), tt.says) {
			t.Errorf("%+v: %d %s", tt.shot, got.Code, got.Body)
		}
	}
}

// The names go on as otelfencepost's do, and none is one of them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	read := func() map[string]float64 {
		t.Helper()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(get(h, "GET", here, "/metrics").Body)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for name, f := range families {
			m := f.GetMetric()
			if len(m) != 1 || len(m[0].GetLabel()) != 1 || m[0].GetLabel()[0].GetValue() != bad ||
				!strings.HasPrefix(name, "fencepost_site_") {
				t.Errorf("%s: %v", name, m)
			}
			values[name] = m[0].GetGauge().GetValue() + m[0].GetCounter().GetValue()
		}
		return values
	}
	if got := read(); len(got) != 3 || got["fencepost_site_up"] != 0 {
		t.Errorf("before the first look: %v", got)
	}
	seen := page()
	seen.More = true
	site.Show(board.Shot{Page: seen, Looks: 8, Failures: 1})
	got := read()
	for name, want := range map[string]float64{
		"up": 1, "looks_total": 8, "look_failures_total": 1, "look_duration_seconds": 0.003,
		"look_timestamp_seconds": float64(seen.At.Unix()),
		"lease_held":             2, "lease_reserved": 0, "lease_overtaken": 1, "lease_unusable": 0,
		"lease_waiting": 5, "lease_waited_for": 1,
		"lease_handoffs_total": 4, "lease_turn_seconds": 1.5, "claims_total": 9, "fences": 12, "truncated": 1,
	} {
		if value, ok := got["fencepost_site_"+name]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v", name, value, ok, want)
		}
	}
	site.Show(board.Shot{Page: seen, Problem: errors.New("x")})
	if got := read(); got["fencepost_site_up"] != 0 || got["fencepost_site_lease_held"] != 2 {
		t.Errorf("after a look that failed: %v", got)
	}
	doc, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range got {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/operating.md does not have %s", name)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	site, h := newSite(t, nil)
	site.Show(board.Shot{Page: page(), Problem: errors.New("x")})
	var got struct {
		board.Page
		Problem string
	}
	if err := json.Unmarshal(get(h, "GET", here, "/board.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", got.Page) != fmt.Sprintf("%+v", *page()) || !strings.HasPrefix(got.Problem, "cleaned") {
		t.Errorf("%+v", got)
	}
}
