package browser_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// screen is how a reader sees the page.
type screen struct {
	name   string
	width  int64
	phone  bool
	scheme string // light or dark
}

func screens() []screen {
	return []screen{
		{"phone, light", 360, true, "light"},
		{"phone, dark", 360, true, "dark"},
		{"desktop, light", 1280, false, "light"},
		{"desktop, dark", 1280, false, "dark"},
	}
}

// seen is what was found on a page.
type seen struct {
	// Faults are the defects by kind: console errors, requests, content that overflows, elements without a name.
	Faults []string
	// Ground is the computed colour of the page.
	Ground string
	// Tables and Pictures are their names in the accessibility tree.
	Tables, Pictures []string
}

// startBrowser starts Chromium for a test.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path := findBrowser(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, stopAllocator := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(ctx)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}

// findBrowser skips the test if there is no browser, because people without one also run `make test-browser`. In CI
// that is a failure, so the page is always checked there.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no chromium on this machine (Debian: apt-get install chromium)"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// watched keeps what the browser reports while a page is open.
type watched struct {
	own    []string // the beginnings of addresses that may be asked for
	mu     sync.Mutex
	faults []string
}

func (w *watched) event(page string, event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		w.add("console: %s", e.Type)
	case *runtime.EventExceptionThrown:
		w.add("exception: %s", e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		w.add("log: %s", e.Entry.Text)
	case *network.EventRequestWillBeSent:
		url := e.Request.URL
		own := slices.ContainsFunc(w.own, func(begin string) bool { return strings.HasPrefix(url, begin) })
		if url != page && !own && !strings.HasPrefix(url, "data:") {
			w.add("request: %s", url)
		}
	}
}

func (w *watched) add(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *watched) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faults
}

// look opens a page in a tab of its own. It may ask for addresses that begin with one of own, and for no others.
func look(browser context.Context, t *testing.T, page string, s screen, own ...string) seen {
	t.Helper()
	tab, closeTab := chromedp.NewContext(browser)
	defer closeTab()
	w := watched{own: own}
	must(t, chromedp.Listen(tab, func(event any) { w.event(page, event) }))
	call(tab, t, network.Enable, network.EnableParams{})
	call(tab, t, log.Enable, cdp.Empty{})
	call(tab, t, runtime.Enable, cdp.Empty{})
	call(tab, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: 800, DeviceScaleFactor: 1, Mobile: s.phone,
	})
	call(tab, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.scheme}},
	})
	must(t, chromedp.Do(tab, chromedp.Navigate(page)))

	_ = evaluate[chromedp.Void](tab, t, `document.querySelectorAll("details").forEach(d => d.open = true)`)
	found := seen{Ground: evaluate[string](tab, t, `getComputedStyle(document.documentElement).backgroundColor`)}
	found.Faults = append(
		evaluate[[]string](tab, t, fmt.Sprintf(overflow, s.width)),
		evaluate[[]string](tab, t, structural)...)
	tree := call(tab, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	for _, node := range tree {
		switch text(node.Role) {
		case "table":
			found.Tables = append(found.Tables, text(node.Name))
		case "image", "img", "graphics-document":
			found.Pictures = append(found.Pictures, text(node.Name))
		}
	}
	for kind, names := range map[string][]string{"table": found.Tables, "picture": found.Pictures} {
		for _, name := range names {
			if name == "" {
				found.Faults = append(found.Faults, "a "+kind+" without a name")
			}
		}
	}
	found.Faults = append(found.Faults, w.all()...)
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func call[P, R any](tab context.Context, t *testing.T, command cdp.Command[P, R], params P) R {
	t.Helper()
	result, err := chromedp.Call(tab, command, params)
	must(t, err)
	return result
}

func evaluate[T any](tab context.Context, t *testing.T, script string) T {
	t.Helper()
	value, err := chromedp.Run(tab, chromedp.Evaluate[T](script))
	must(t, err)
	return value
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	s, err := strconv.Unquote(string(v.Value))
	if err != nil {
		return string(v.Value)
	}
	return s
}

// overflow lists what makes the page itself scroll sideways, and text that is too small to read.
const overflow = `(() => {
	const width = %d, faults = [];
	if (document.documentElement.scrollWidth > width) {
		faults.push("overflow: the page is " + document.documentElement.scrollWidth + " wide");
	}
	for (const text of document.querySelectorAll("svg text")) {
		const m = text.getScreenCTM(), size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(m.a, m.b);
		if (size < 9.5) faults.push("small: " + text.textContent + " at " + size.toFixed(1) + " px");
	}
	return faults;
})()`

// structural lists the defects that a screen reader would meet.
const structural = `(() => {
	const faults = [];
	if (!document.documentElement.lang) faults.push("language: none");
	if (!document.title) faults.push("title: none");
	let last = 0;
	for (const h of document.querySelectorAll("h1,h2,h3,h4,h5,h6")) {
		const level = Number(h.tagName[1]);
		if (level > last + 1) faults.push("heading: " + h.textContent + " is of level " + level + " after " + last);
		last = level;
	}
	const ids = new Set();
	for (const e of document.querySelectorAll("[id]")) {
		if (ids.has(e.id)) faults.push("id: " + e.id + " is there twice");
		ids.add(e.id);
	}
	for (const e of document.querySelectorAll("[aria-labelledby]")) {
		for (const id of e.getAttribute("aria-labelledby").split(" "))
			if (!ids.has(id)) faults.push("label: nothing is " + id);
	}
	for (const th of document.querySelectorAll("th")) if (!th.scope) faults.push("scope: " + th.textContent + " has none");
	for (const e of document.querySelectorAll(".scroll"))
		if (e.tabIndex !== 0) faults.push("keyboard: a table cannot be scrolled");
	return faults;
})()`
