package browser_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost-pg/fencepost/internal/services"
)

func TestMain(m *testing.M) {
	services.RunHostIfAsked()
	os.Exit(m.Run())
}

// tool is the built command-line tool with fresh servers.
type tool struct {
	t        *testing.T
	path     string
	database string
	env      []string
}

func newTool(t *testing.T) *tool {
	t.Helper()
	s, err := services.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &tool{t: t, path: filepath.Join(t.TempDir(), "fencepost"), database: s.PostgresURL}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", f.path, ".")
	build.Dir = "../../../../cmd/fencepost"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.env = append(
		os.Environ(),
		"FENCEPOST_POSTGRES_URL="+s.PostgresURL,
		"FENCEPOST_REDIS_URL="+s.RedisURL,
		"FENCEPOST_NAMESPACE=billing",
	)
	f.command("migrate", "up")
	return f
}

// command runs a command to its end.
func (f *tool) command(args ...string) {
	f.t.Helper()
	cmd := exec.CommandContext(f.t.Context(), f.path, args...)
	cmd.Env = f.env
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// start runs a command until the test ends, and returns its first line.
func (f *tool) start(args ...string) string {
	f.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), f.path, args...)
	cmd.Env, cmd.Stderr = f.env, os.Stderr
	in, err := cmd.StdinPipe()
	must(f.t, err)
	out, err := cmd.StdoutPipe()
	must(f.t, err)
	must(f.t, cmd.Start())
	f.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(f.t, err)
	return line
}

// hold has somebody hold a lease until the test ends.
func (f *tool) hold(resource, label string) {
	f.t.Helper()
	f.start("run", "--resource", resource, "--label", label, "--", "sh", "-c", "echo; cat >/dev/null")
}

// worker is what a worker would export.
const worker = `# TYPE fencepost_lease_held gauge
fencepost_lease_held 3
# TYPE fencepost_lease_lost_total counter
fencepost_lease_lost_total{fencepost_reason="clock"} 2
# TYPE fencepost_transaction_stale_total counter
fencepost_transaction_stale_total 1
# TYPE fencepost_lease_handoff_duration_seconds histogram
fencepost_lease_handoff_duration_seconds_bucket{le="0.005"} 90
fencepost_lease_handoff_duration_seconds_bucket{le="0.05"} 100
fencepost_lease_handoff_duration_seconds_bucket{le="+Inf"} 100
fencepost_lease_handoff_duration_seconds_sum 0.4
fencepost_lease_handoff_duration_seconds_count 100
`

// script is a name that would be code, if it were not shown as text.
const script = `<script>document.title = "taken over"</script>`

// The page of fencepost serve, over real servers: it is clear on a phone and on a desktop, in the light and in the
// dark, loads nothing from elsewhere, shows names as text, and refreshes itself.
func TestServedPage(t *testing.T) {
	f := newTool(t)
	f.hold("invoice:2026-11", "host-a/4242")
	f.hold("report:a-rather-long-name-as-tenants-have-them/2026-11/final", "host-b.eu-central-1.example/17")
	f.hold(script, "host-b/17")
	f.hold("rates", "host-c/99")
	waiting := exec.CommandContext(t.Context(), f.path, "run", "--resource", "invoice:2026-11", "--", "true")
	waiting.Env = f.env
	must(t, waiting.Start())
	t.Cleanup(func() {
		_ = waiting.Process.Signal(os.Interrupt)
		_ = waiting.Wait()
	})
	conn, err := pgx.Connect(t.Context(), f.database)
	must(t, err)
	_, err = conn.Exec(
		t.Context(),
		`SELECT fencepost.claim('billing:rates', 9, gen_random_uuid(), 'host-d/1')`,
	) // past Redis
	must(t, err)
	must(t, conn.Close(t.Context()))
	metrics := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, worker) }),
	)
	defer metrics.Close()

	var at struct{ URL string }
	must(
		t,
		json.Unmarshal(
			[]byte(f.start("serve", "--listen=127.0.0.1:0", "--interval=1s", "--json", "--workers="+metrics.URL)),
			&at,
		),
	)
	browser := startBrowser(t)
	grounds := map[string]string{"light": "rgb(247, 248, 250)", "dark": "rgb(17, 22, 29)"}
	untilShown(browser, t, at.URL)
	for _, s := range screens() {
		t.Run(s.name, func(t *testing.T) {
			found := look(browser, t, at.URL, s, at.URL)
			for _, fault := range found.Faults {
				t.Error(fault)
			}
			if found.Ground != grounds[s.scheme] {
				t.Errorf("the page is %s, want %s", found.Ground, grounds[s.scheme])
			}
			if !slices.Contains(found.Tables, "Leases") {
				t.Errorf("no table is called Leases: %q", found.Tables)
			}
		})
	}
	t.Run("it refreshes itself", func(t *testing.T) { refreshes(browser, t, at.URL) })
}

// untilShown waits until the first look is on the page, with the waiter.
func untilShown(browser context.Context, t *testing.T, address string) {
	t.Helper()
	tab, closeTab := chromedp.NewContext(browser)
	defer closeTab()
	must(t, chromedp.Do(tab, chromedp.Navigate(address)))
	until(tab, t, `document.querySelectorAll("#board tbody tr").length == 4 && `+
		`document.querySelector("#board tbody tr td:nth-child(6)").textContent == "1"`)
}

// until asks the page until it says yes.
func until(tab context.Context, t *testing.T, question string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !evaluate[bool](tab, t, question) {
		if time.Now().After(deadline) {
			t.Fatalf("%s stays false: %s", question, evaluate[string](tab, t, `document.body.innerText`))
		}
		<-time.After(50 * time.Millisecond)
	}
}

// refreshes checks what the page does by itself, and that names are text in it.
func refreshes(browser context.Context, t *testing.T, address string) {
	t.Helper()
	tab, closeTab := chromedp.NewContext(browser)
	defer closeTab()
	must(t, chromedp.Do(tab, chromedp.Navigate(address+"?sort=name")))
	if title := evaluate[string](tab, t, `document.title`); title != "billing · fencepost" {
		t.Errorf("the title is %q", title)
	}
	const seen = `document.querySelector("#board .seen time").textContent`
	first := evaluate[string](tab, t, seen)
	until(tab, t, seen+` != "`+first+`"`)
	names := evaluate[[]string](tab, t,
		`[...document.querySelectorAll("#board tbody th")].map(th => th.lastChild.textContent.trim())`)
	if !slices.IsSorted(
		names,
	) ||
		!slices.Contains(names, script) ||
		evaluate[int](tab, t, `document.querySelectorAll("#board script").length`) != 0 ||
		evaluate[string](tab, t, `document.title`) != "billing · fencepost" {
		t.Errorf("the names after a refresh are %q", names)
	}
	// The reader switches it off.
	_ = evaluate[chromedp.Void](tab, t, `document.getElementById("live").click()`)
	_ = evaluate[chromedp.Void](tab, t, `document.querySelector("#board").dataset.mark = "1"`)
	<-time.After(2500 * time.Millisecond) // two refreshes would have come
	if !evaluate[bool](tab, t, `document.querySelector("#board").dataset.mark == "1"`) {
		t.Error("it refreshes although it was switched off")
	}
	folder := os.Getenv("FENCEPOST_SCREENSHOTS")
	if folder == "" {
		return
	}
	for _, s := range screens() {
		picture(tab, t, s, filepath.Join(folder, strings.ReplaceAll(s.name, ", ", "-")+".png"))
	}
}

// picture writes what a reader sees, for people to look at.
func picture(tab context.Context, t *testing.T, s screen, path string) {
	t.Helper()
	call(tab, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: 900, DeviceScaleFactor: 1, Mobile: s.phone,
	})
	call(tab, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}},
	})
	shot := call(tab, t, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	must(t, os.WriteFile(path, shot.Data, 0o600))
}
